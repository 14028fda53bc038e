/** Ollama's own client, unmodified, at /api. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: Ollama;
let chats: OpenAI;
before(async () => {
  at = await startTestDaemon();
  client = new Ollama({ host: at.http });
  chats = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const model = 'demo';
const messages = [{ role: 'user', content: 'What is 123 + 456?' }];
const greedy = { temperature: 0, num_predict: 32 };
const asked = { model, messages, options: greedy };
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const weather = { type: 'function', function: { name: 'get_weather', description: '', parameters } };
const post = (path: string, body: object, method = 'POST') =>
  fetch(`${at.http}${path}`, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

test('a chat is answered, with counts and times', async () => {
  const answer = await client.chat(asked);
  assert.deepEqual([answer.message.role, answer.message.content], ['assistant', '123 + 456 = 579']);
  assert.deepEqual([answer.model, answer.done, answer.done_reason, answer.prompt_eval_count], [model, true, 'stop', 22]);
  assert.ok(answer.eval_count > 5 && answer.total_duration > 0 && answer.total_duration >= answer.eval_duration);
  assert.ok(!Number.isNaN(new Date(answer.created_at).getTime()));
});

test('the model sees what it sees in a chat of OpenAI, whatever the tag of its name', async () => {
  const turns = [
    { role: 'system' as const, content: 'Answer in one sentence.' },
    { role: 'user' as const, content: 'What is the capital of France?' },
  ];
  const chat = await chats.chat.completions.create({ model, messages: turns, seed: 7, max_tokens: 24 });
  const options = { seed: 7, num_predict: 24 };
  const answer = await client.chat({ model: 'demo:latest', messages: turns, options });
  assert.equal(answer.message.content, chat.choices[0]?.message.content);
  assert.equal(answer.prompt_eval_count, chat.usage?.prompt_tokens);
  const generated = await client.generate({ model, system: turns[0]?.content ?? '', prompt: turns[1]?.content ?? '', options });
  assert.equal(generated.response, chat.choices[0]?.message.content);
});

test('streamed it is the whole, in lines, the last of which has the counts', async () => {
  const story = {
    model,
    messages: [{ role: 'user', content: 'Tell me a story about a fox.' }],
    options: { temperature: 0.9, seed: 5, num_predict: 48 },
  };
  const whole = await client.chat(story);
  let text = '';
  const ends = [];
  for await (const part of await client.chat({ ...story, stream: true })) {
    text += part.message.content;
    if (part.done) ends.push([part.done_reason, part.eval_count, part.prompt_eval_count]);
  }
  assert.equal(text, whole.message.content);
  assert.deepEqual(ends, [['length', whole.eval_count, whole.prompt_eval_count]]);
});

test('a prompt is answered, a raw one gone on with as a text completion is', async () => {
  const answer = await client.generate({ model, prompt: 'What is 123 + 456?', options: greedy });
  assert.equal(answer.response, '123 + 456 = 579');
  const raw = { model, prompt: 'Once upon a time', raw: true, options: { seed: 3, num_predict: 12 } };
  const text = await chats.completions.create({ model, prompt: raw.prompt, seed: 3, max_tokens: 12 });
  const whole = await client.generate(raw);
  assert.equal(whole.response, text.choices[0]?.text);
  let streamed = '';
  for await (const part of await client.generate({ ...raw, stream: true })) streamed += part.response ?? '';
  assert.equal(streamed, whole.response);
  const long = await client.generate({ ...raw, options: { temperature: 0, num_predict: -1, stop: ['.'] } });
  assert.ok(long.eval_count !== 16, 'as many as fit, not the 16 of OpenAI');
});

test('tools are called, streamed as whole, and their results go back', async () => {
  const turns = [{ role: 'user', content: 'Tell me the weather in Lisbon.' }];
  const tooled = { model, messages: turns, tools: [weather], options: { temperature: 0, num_predict: 64 } };
  const whole = await client.chat(tooled);
  assert.deepEqual(whole.message.tool_calls, [{ function: { name: 'get_weather', arguments: { city: 'Lisbon' } } }]);
  const calls = [];
  for await (const part of await client.chat({ ...tooled, stream: true })) calls.push(...(part.message.tool_calls ?? []));
  assert.deepEqual(calls, whole.message.tool_calls);
  const back = await client.chat({
    ...tooled,
    messages: [...turns, whole.message, { role: 'tool', tool_name: 'get_weather', content: 'Sunny.' }],
  });
  const chat = await chats.chat.completions.create({
    model,
    temperature: 0,
    max_tokens: 64,
    tools: [{ type: 'function', function: { name: 'get_weather', description: '', parameters } }],
    messages: [
      { role: 'user', content: 'Tell me the weather in Lisbon.' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Lisbon"}' } }],
      },
      { role: 'tool', tool_call_id: 'c', content: 'Sunny.' },
    ],
  });
  assert.equal(back.message.content, chat.choices[0]?.message.content);
});

test('an answer is held to JSON, or to a schema', async () => {
  const place = { type: 'object', properties: { city: { type: 'string', maxLength: 12 } }, required: ['city'] };
  const formed = await client.chat({ ...asked, format: place, options: { temperature: 0, num_predict: 64 } });
  assert.equal(typeof (JSON.parse(formed.message.content) as { city?: unknown }).city, 'string');
  const response = await post('/api/generate', { model, prompt: 'x', format: { type: 'object', unevaluatedItems: true }, stream: false });
  assert.equal(response.status, 400);
  assert.match(((await response.json()) as { error: string }).error, /format/);
});

test('texts become the vectors of /v1/embeddings', async () => {
  const { embeddings, prompt_eval_count } = await client.embed({ model, input: ['A fox.', 'A dog.'] });
  const { data, usage } = await chats.embeddings.create({ model, input: ['A fox.', 'A dog.'], encoding_format: 'float' });
  assert.deepEqual(
    embeddings,
    data.map(({ embedding }) => embedding),
  );
  assert.equal(prompt_eval_count, usage.prompt_tokens);
  assert.deepEqual((await client.embeddings({ model, prompt: 'A fox.' })).embedding, embeddings[0]);
});

test('models are listed, shown and found loaded; the version is one of theirs', async () => {
  const { models } = await client.list();
  assert.deepEqual(
    models.map(({ name }) => name),
    [model],
  );
  assert.ok((models[0]?.size ?? 0) > 1e6 && /^[0-9a-f]{64}$/.test(models[0]?.digest ?? ''));
  const shown = await client.show({ model: 'demo:latest' });
  assert.deepEqual([shown.details.family, shown.capabilities], ['llama', ['completion', 'tools']]);
  assert.deepEqual(
    (await client.ps()).models.map(({ name }) => name),
    [model],
  );
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  const loading = await client.generate({ model, prompt: '' });
  assert.deepEqual([loading.done, loading.done_reason, loading.response], [true, 'load', '']);
  assert.equal((await client.chat({ model })).done_reason, 'load');
});

test('a body that curl -d calls a form is taken from a program, and from nothing that may be a page', async () => {
  // Not by fetch, which may neither leave out nor forge what browsers say.
  const ask = (path: string, more: Record<string, string>): Promise<number> =>
    new Promise((resolve, reject) => {
      const headers = { 'content-type': 'application/x-www-form-urlencoded', ...more };
      const sent = request(`${at.http}${path}`, { method: 'POST', headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      });
      sent.on('error', reject).end(JSON.stringify({ ...asked, stream: false }));
    });
  assert.equal(await ask('/api/chat', { 'user-agent': 'curl/8.5.0' }), 200);
  assert.equal(await ask('/api/chat', {}), 200);
  const browsers: Record<string, string>[] = [
    { origin: at.http }, // our own page too: it says application/json
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { referer: 'http://elsewhere.example/' },
    { cookie: 'a=b' },
    { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64)' },
    { 'content-type': 'text/plain' },
    { 'content-type': 'multipart/form-data; boundary=x' },
    { 'content-type': 'application/x-www-form-urlencoded; charset=latin1' },
  ];
  for (const headers of browsers) assert.equal(await ask('/api/chat', headers), 415, JSON.stringify(headers));
  assert.equal(await ask('/api/chat', { origin: 'null' }), 403, 'refused at the gate');
  assert.equal(await ask('/v1/chat/completions', {}), 415, 'other APIs do not show it so');
});

test('what cannot be done is refused with one sentence, before a stream begins', async () => {
  const refused: readonly (readonly [string, object, RegExp])[] = [
    ['/api/chat', { messages: [{ role: 'user', content: 'x', images: ['AA=='] }] }, /messages\[0\]\.images: images are not supported/],
    ['/api/chat', { messages: [{ role: 'user', content: 7 }] }, /messages\[0\]\.content/],
    ['/api/chat', { messages, options: { temperature: 9 } }, /options\.temperature/],
    ['/api/chat', { messages, options: { repeat_penalty: -1 } }, /options\.repeat_penalty/],
    ['/api/chat', { messages, options: { num_predict: 100_000 } }, /at most 4096/],
    ['/api/chat', { messages, options: { mirostat: 2 } }, /options\.mirostat/],
    ['/api/chat', { messages, format: 'xml' }, /format/],
    ['/api/chat', { messages, think: 'hard' }, /think/],
    ['/api/generate', { prompt: 'x', images: ['AA=='] }, /images/],
    ['/api/generate', { prompt: 'x', suffix: 'y' }, /suffix/],
    ['/api/generate', { prompt: 'x', template: '{{ .Prompt }}' }, /template/],
    ['/api/generate', { prompt: 'x', context: [1, 2] }, /context/],
    ['/api/generate', { prompt: 'x', raw: true, system: 'y' }, /system/],
    ['/api/embed', { input: [] }, /input/],
    ['/api/embed', { input: 'x', dimensions: 1e6 }, /dimensions/],
    ['/api/show', { model: undefined }, /model: is required/],
  ];
  for (const [path, more, message] of refused) {
    const response = await post(path, { model, ...more });
    assert.equal(response.status, 400, JSON.stringify(more));
    const body = (await response.json()) as { error: string };
    assert.deepEqual(Object.keys(body), ['error']);
    assert.match(body.error, message);
  }
  await assert.rejects(client.chat({ ...asked, model: 'other' }), { name: 'ResponseError', status_code: 404 });
  const wrong = await fetch(`${at.http}/api/chat`, { method: 'POST', body: '{}', headers: { 'content-type': 'text/plain' } });
  assert.deepEqual([wrong.status, typeof ((await wrong.json()) as { error: unknown }).error], [415, 'string']);
});

test('a client that aborts its stream has its request ended and its blocks freed', async () => {
  const stream = await client.chat({
    model,
    messages: [{ role: 'user', content: 'Tell me a story.' }],
    stream: true,
    // Long whatever is drawn: a story may be over before its second part.
    format: { type: 'array', items: { type: 'integer' }, minItems: 400, maxItems: 400 },
    options: { num_predict: 2000, temperature: 1.5 },
  });
  let parts = 0;
  await assert.rejects(async () => {
    for await (const _ of stream) if (++parts === 2) stream.abort();
  });
  const { requests } = await at.untilFreed();
  assert.equal(requests?.running, 0);
});

test('server.ollama_api = false takes all of it away', async () => {
  const without = await startTestDaemon(['server.ollama_api=false']);
  try {
    for (const path of ['/api/tags', '/api/version', '/api/chat']) assert.equal((await fetch(without.http + path)).status, 404);
    const document = (await (await fetch(`${without.http}/openapi.json`)).json()) as { paths: object };
    assert.deepEqual(
      Object.keys(document.paths).filter((path) => path.startsWith('/api')),
      [],
    );
  } finally {
    await without.close();
  }
});
