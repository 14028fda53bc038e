/** The embedded model answers over every door of a real daemon. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect } from '../../rpc/client/node.js';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { addUp } from '../helpers/wire/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon();
});
after(() => at.close());

const ask = (content: string, more: object = {}) => ({ messages: [{ role: 'user', content }], temperature: 0, max_tokens: 32, ...more });
const sum = ask('What is 123 + 456?');

test('a sum is answered right over text frames, whole and streamed', async () => {
  const socket = await at.open();
  const whole = await socket.call('chat.completions.create', sum);
  assert.equal(whole.choices?.[0]?.message?.content, '123 + 456 = 579');
  assert.equal(whole.choices?.[0]?.finish_reason, 'stop');
  assert.equal(whole.usage?.total_tokens, (whole.usage?.prompt_tokens ?? 0) + (whole.usage?.completion_tokens ?? 0));
  const id = socket.send('chat.completions.create', { ...sum, stream: true });
  const end = await socket.reply(id);
  assert.deepEqual(addUp(socket.events(id), 1).texts, ['123 + 456 = 579']);
  assert.equal(end.result?.choices?.[0]?.message?.content, undefined, 'the response does not repeat the text');
  assert.equal(socket.log.at(-1), end, 'nothing comes after the response');
  await socket.close();
});

test('the same over msgpack frames', async () => {
  const socket = await at.open('jsonrpc.msgpack');
  const id = socket.send('chat.completions.create', { ...sum, stream: { token: 'π', credit: 1000 } });
  await socket.reply(id);
  assert.deepEqual(addUp(socket.events('π'), 1).texts, ['123 + 456 = 579']);
  await socket.close();
});

test('the same over POST /rpc, also in a batch', async () => {
  const post = async (body: unknown) => {
    const reply = await fetch(`${at.http}/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return [reply.status, await reply.text()] as const;
  };
  const call = { jsonrpc: '2.0', id: 1, method: 'chat.completions.create', params: sum };
  const [status, text] = await post(call);
  assert.equal(status, 200);
  assert.match(text, /123 \+ 456 = 579/);
  const [, batch] = await post([call, { jsonrpc: '2.0', id: 2, method: 'ping' }, { jsonrpc: '2.0', method: 'ping' }, 1]);
  const replies = JSON.parse(batch) as { id: number | null; error?: { code: number } }[];
  assert.deepEqual(replies.map((r) => r.id).sort(), [1, 2, null]);
  assert.equal(replies.find((r) => r.id === null)?.error?.code, -32600);
  assert.deepEqual(await post({ jsonrpc: '2.0', method: 'ping' }), [204, '']);
});

test('what happened to a request is told from the time on at which it was queued', async () => {
  const socket = await at.open();
  for (let i = 0; i < 5; i++) {
    await socket.call('chat.completions.create', sum);
    const { ended } = await socket.call('requests.list', { ended: true });
    const { request } = await socket.call('requests.get', { request_id: ended?.[0]?.request_id });
    const [queued, ...later] = request?.prompts[0]?.marks ?? [];
    assert.equal(queued?.kind, 'queued');
    assert.ok(later.length > 0 && later.every(({ at_ms }) => at_ms >= queued.at_ms), JSON.stringify(request));
  }
  await socket.close();
});

test('the same through our own client', async () => {
  const client = await connect({ url: at.ws });
  const whole = await client.chat.completions.create({ messages: [{ role: 'user', content: 'What is 123 + 456?' }], temperature: 0 });
  assert.equal(whole.choices[0]?.message.content, '123 + 456 = 579');
  let text = '';
  const stream = await client.chat.completions.create({
    messages: [{ role: 'user', content: 'What is 123 + 456?' }],
    temperature: 0,
    stream: true,
  });
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  assert.equal(text, '123 + 456 = 579');
  await client.close();
});

test('two clients get their own answers, with the same ids in flight', async () => {
  const [a, b] = await Promise.all([at.open(), at.open('jsonrpc.msgpack')]);
  const ids = Array.from({ length: 6 }, (_, i) => i + 1);
  for (const i of ids) {
    a.send('chat.completions.create', ask(`What is ${i} + 100?`, { stream: true }), i);
    b.send('chat.completions.create', ask(`What is ${i} + 200?`, { stream: true }), i);
  }
  for (const i of ids) {
    await Promise.all([a.reply(i), b.reply(i)]);
    assert.deepEqual(addUp(a.events(i), 1).texts, [`${i} + 100 = ${i + 100}`]);
    assert.deepEqual(addUp(b.events(i), 1).texts, [`${i} + 200 = ${i + 200}`]);
  }
  await Promise.all([a.close(), b.close()]);
});

test('the probes see the engine, and discovery lists what can be called', async () => {
  assert.deepEqual(await (await fetch(`${at.http}/health`)).json(), { status: 'ok' });
  assert.deepEqual(await (await fetch(`${at.http}/ready`)).json(), { status: 'ready' });
  const document = (await (await fetch(`${at.http}/openrpc.json`)).json()) as { methods: { name: string }[] };
  const names = document.methods.map((m) => m.name);
  for (const name of ['chat.completions.create', 'stats.get', 'ping']) assert.ok(names.includes(name), name);
});
