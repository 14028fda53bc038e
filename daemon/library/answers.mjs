// Answers of an engine in this process: node daemon/library/answers.mjs
import { createEngine } from 'inferd';

const engine = await createEngine(); // the demo model; { model_name: '/path/to/model' } takes another
const questions = ['What is 123 + 456?', 'What is the capital of Japan?', '日本的首都是哪里?'];
const chats = questions.map((content) => ({ messages: [{ role: 'user', content }] }));
const answers = await engine.generate(chats, { temperature: 0, max_tokens: 64 });
for (const [i, { choices }] of answers.entries()) console.log(`${questions[i]} ${choices[0].message.content}`);

const story = engine.stream('Once upon a time', { temperature: 0, max_tokens: 32 });
for await (const chunk of story) process.stdout.write(chunk.choices[0]?.text ?? '');
console.log();
await engine.close();
