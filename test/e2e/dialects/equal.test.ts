/** One question in the shapes of four servers, streamed and whole: the same text, in the same number of tokens. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
before(async () => {
  // Small budget and pool, so that chunks, mixed steps and prefix hits all happen.
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=256', 'scheduler.max_num_sequences=16']);
});
after(() => at.close());

interface Told {
  readonly text: string;
  readonly prompt: number;
  readonly tokens: number;
}
interface Sampling {
  readonly temperature: number;
  readonly top_k: number;
  readonly seed: number;
  readonly stop: readonly string[];
}
interface Question extends Sampling {
  readonly system: string;
  readonly user: string;
  readonly max: number;
}

async function post(path: string, body: object): Promise<string> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(at.http + path, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return text;
}

type Counts = Readonly<Record<string, number>>;
interface Said {
  readonly content?: string | null;
}
interface Chunk {
  readonly choices: readonly { readonly delta?: Said; readonly message?: Said }[];
  readonly usage?: Counts;
}
interface Response {
  readonly output: readonly { readonly content: readonly { readonly text: string }[] }[];
  readonly usage: Counts;
}
interface ResponseEvent {
  readonly type: string;
  readonly delta?: string;
  readonly response?: Response;
}
interface Message {
  readonly content: readonly { readonly text?: string }[];
  readonly usage: Counts;
}
interface MessageEvent {
  readonly type: string;
  readonly delta?: { readonly text?: string };
  readonly usage?: Counts;
}
interface Line {
  readonly message: Said;
  readonly prompt_eval_count?: number;
  readonly eval_count?: number;
}

const parsed = <T>(text: string): T => JSON.parse(text) as T;
const events = <T>(text: string): T[] => [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data = '']) => parsed<T>(data));
const sum = (texts: readonly (string | null | undefined)[]): string => texts.map((text) => text ?? '').join('');
const counted = (usage: Counts | undefined, ...names: readonly string[]): number =>
  names.reduce((all, name) => all + (usage?.[name] ?? 0), 0);

/** Each way to ask: whole, and as a stream. */
const ways: readonly ((question: Question, stream: boolean) => Promise<Told>)[] = [
  async ({ system, user, max, ...sampling }, stream) => {
    const messages = [
      { role: 'system', content: system },
      { role: 'user', content: user },
    ];
    const more = stream ? { stream_options: { include_usage: true } } : {};
    const text = await post('/v1/chat/completions', { ...sampling, messages, max_tokens: max, stream, ...more });
    const chunks = stream ? events<Chunk>(text) : [parsed<Chunk>(text)];
    const usage = chunks.at(-1)?.usage;
    const said = chunks.map(({ choices: [choice] }) => (choice?.delta ?? choice?.message)?.content);
    return { text: sum(said), prompt: counted(usage, 'prompt_tokens'), tokens: counted(usage, 'completion_tokens') };
  },
  async ({ system, user, max, ...sampling }, stream) => {
    const text = await post('/v1/responses', { ...sampling, instructions: system, input: user, max_output_tokens: max, stream });
    const told = stream ? events<ResponseEvent>(text) : [];
    const response = stream ? told.at(-1)?.response : parsed<Response>(text);
    const whole = sum((response?.output ?? []).map(({ content }) => content[0]?.text));
    if (stream) assert.equal(sum(told.map(({ type, delta }) => (type === 'response.output_text.delta' ? delta : ''))), whole);
    return { text: whole, prompt: counted(response?.usage, 'input_tokens'), tokens: counted(response?.usage, 'output_tokens') };
  },
  async ({ system, user, max, stop, ...sampling }, stream) => {
    const messages = [{ role: 'user', content: user }];
    const body = { ...sampling, model: 'demo', system, messages, max_tokens: max, stop_sequences: stop, stream };
    const text = await post('/v1/messages', body);
    const told = stream ? events<MessageEvent>(text) : [];
    const usage = stream ? told.find(({ type }) => type === 'message_delta')?.usage : parsed<Message>(text).usage;
    const said = stream ? told.map(({ delta }) => delta?.text) : parsed<Message>(text).content.map((block) => block.text);
    const prompt = counted(usage, 'input_tokens', 'cache_read_input_tokens');
    return { text: sum(said), prompt, tokens: counted(usage, 'output_tokens') };
  },
  async ({ system, user, max, ...sampling }, stream) => {
    const messages = [
      { role: 'system', content: system },
      { role: 'user', content: user },
    ];
    const text = await post('/api/chat', { model: 'demo:latest', messages, options: { ...sampling, num_predict: max }, stream });
    const lines = text
      .trim()
      .split('\n')
      .map((line) => parsed<Line>(line));
    const last = lines.at(-1);
    return { text: sum(lines.map(({ message }) => message.content)), prompt: last?.prompt_eval_count ?? 0, tokens: last?.eval_count ?? 0 };
  },
];

const users = ['Tell me a story about a fox.', 'What is 12 + 30?', 'Who are you?', 'What is the capital of Italy?', 'Say something.'];

test('seeded questions have the same answer in every dialect, streamed and whole, all at once', async () => {
  const questions = Array.from(
    { length: 12 },
    (_, i): Question => ({
      system: i % 3 === 0 ? 'Answer in one sentence.' : 'You are kind.',
      user: users[i % users.length] ?? '',
      max: 4 + ((7 * i) % 29),
      temperature: [0, 0.8, 1.3][i % 3] ?? 0,
      top_k: 20 + i,
      seed: i,
      stop: i % 4 === 0 ? ['.'] : [],
    }),
  );
  await Promise.all(
    questions.map(async (question, i) => {
      const told = await Promise.all(ways.flatMap((way) => [way(question, false), way(question, true)]));
      for (const one of told) assert.deepEqual(one, told[0], `question ${i}`);
      assert.ok((told[0]?.tokens ?? 0) > 0);
    }),
  );
  await at.untilFreed();
});
