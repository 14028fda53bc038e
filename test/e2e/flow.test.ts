/** Cancelling in every state, closing a socket, credit, and readers that stall: one response each, and no KV block stays behind. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { addUp, type Reply, type RpcSocket } from '../helpers/wire/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon([
    'scheduler.max_num_sequences=8',
    'scheduler.max_num_batched_tokens=64',
    'server.slow_client_timeout_s=1',
    'cache.enable_prefix_caching=false',
  ]);
});
after(() => at.close());

const endless = { messages: [{ role: 'user', content: 'Count.' }], ignore_eos: true, max_tokens: 3500, seed: 1, stream: true };
const longPrompt = { messages: [{ role: 'user', content: 'word '.repeat(1500) }], max_tokens: 100, ignore_eos: true, stream: true };

/** Cancels `id`, and checks that exactly one response comes and nothing on the stream after it. */
async function cancelled(socket: RpcSocket, id: number | string): Promise<Reply> {
  socket.notify('$/cancelRequest', { id });
  const reply = await socket.reply(id);
  assert.equal(reply.error?.code, -32800);
  await socket.call('ping');
  const mine = socket.log.filter((m) => m.id === id || m.params?.token === id);
  assert.equal(mine.filter((m) => m.id === id).length, 1, 'one response');
  assert.equal(mine.at(-1), reply, 'nothing after it');
  assert.equal(reply.error.data?.['last_seq'], socket.events(id).length - 1);
  return reply;
}

/** Tokens that the answer to a cancelled request says it had made. */
function generated(reply: Reply): number {
  const usage = reply.error?.data?.['usage'] as { completion_tokens: number } | undefined;
  assert.ok(usage);
  return usage.completion_tokens;
}

test('a request cancelled before it is queued', async () => {
  const socket = await at.open();
  await cancelled(socket, socket.send('chat.completions.create', longPrompt));
  await at.untilFreed();
  await socket.close();
});

test('a request cancelled while it is queued', async () => {
  const socket = await at.open();
  const running = Array.from({ length: 8 }, () => socket.send('chat.completions.create', endless));
  for (const id of running) await socket.event(id, 'delta');
  const queued = socket.send('chat.completions.create', endless);
  await socket.event(queued, 'queued');
  const reply = await cancelled(socket, queued);
  assert.equal(generated(reply), 0);
  for (const id of running) await cancelled(socket, id);
  await at.untilFreed();
  await socket.close();
});

test('one request of a client does not wait for all that another client has sent before', async () => {
  const [many, one] = [await at.open(), await at.open()];
  const short = { messages: [{ role: 'user', content: 'Count.' }], ignore_eos: true, max_tokens: 20, seed: 1 };
  const ids = Array.from({ length: 80 }, () => many.send('chat.completions.create', short));
  await many.reply(ids[0] ?? '');
  assert.ok(await one.call('chat.completions.create', short));
  const answered = new Set(many.log.map((m) => m.id));
  assert.ok(ids.filter((id) => !answered.has(id)).length > 40, 'most of the others still wait');
  for (const id of ids) assert.ok((await many.reply(id)).result, 'and are answered later');
  await at.untilFreed();
  await many.close();
  await one.close();
});

test('a request cancelled in the middle of its prompt', async () => {
  const socket = await at.open();
  const id = socket.send('chat.completions.create', longPrompt);
  const event = await socket.event(id, 'prefill');
  assert.ok(Number(event.params?.['done']) < Number(event.params?.['total']));
  await cancelled(socket, id);
  assert.equal(socket.events(id).filter((m) => m.params?.kind === 'delta').length, 0);
  await at.untilFreed();
  await socket.close();
});

test('a request cancelled while it answers', async () => {
  const socket = await at.open();
  const id = socket.send('chat.completions.create', { ...endless, n: 3 });
  await socket.event(id, 'delta');
  assert.ok(((await at.stats()).kv?.used_blocks ?? 0) > 0);
  const reply = await cancelled(socket, id);
  assert.ok(generated(reply) > 0);
  await at.untilFreed();
  await socket.close();
});

test('a cancel that comes too late, or names nothing, changes nothing', async () => {
  const socket = await at.open();
  const id = socket.send('chat.completions.create', { ...endless, max_tokens: 3 });
  assert.ok((await socket.reply(id)).result);
  socket.notify('$/cancelRequest', { id });
  socket.notify('$/cancelRequest', { id: 'nobody' });
  await socket.call('ping');
  assert.equal(socket.log.filter((m) => m.id === id).length, 1);
  await socket.close();
});

test('closing the socket cancels all its requests in whatever state they are', async () => {
  const socket = await at.open();
  for (let i = 0; i < 12; i++) socket.send('chat.completions.create', i % 3 === 0 ? longPrompt : endless);
  await socket.until((m) => m.params?.kind === 'delta');
  const before = await at.stats();
  assert.ok((before.requests?.running ?? 0) > 0);
  socket.ws.terminate();
  await at.untilFreed();
});

test('an HTTP client that goes away cancels its call', async () => {
  const gone = new AbortController();
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'chat.completions.create', params: { ...endless, stream: false } });
  const headers = { 'content-type': 'application/json' };
  const call = fetch(`${at.http}/rpc`, { method: 'POST', headers, body, signal: gone.signal });
  await eventually('the request runs', async () => ((await at.stats()).requests?.running ?? 0) > 0);
  gone.abort();
  await assert.rejects(call);
  await at.untilFreed();
});

test('a stream stops at its credit, goes on with each grant, and loses nothing', async () => {
  const socket = await at.open();
  const params = { ...endless, max_tokens: 40, return_token_ids: true };
  const free = socket.send('chat.completions.create', params);
  await socket.reply(free);
  const expected = addUp(socket.events(free), 1);

  const id = socket.send('chat.completions.create', { ...params, stream: { token: 'slow', credit: 5 } });
  const numTokens = (events: readonly Reply[]) => addUp(events, 1).tokenIds[0]?.length ?? 0;
  /** Waits for all that `granted` tokens allow, and proves that the last event was sent while some of them were left. */
  const untilSpent = async (granted: number) => {
    await socket.until(() => numTokens(socket.events('slow')) >= granted);
    const events = socket.events('slow');
    // A piece of several tokens is not torn apart, so the last one may go beyond; then nothing more comes.
    assert.ok(numTokens(events.slice(0, -1)) < granted);
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(socket.events('slow').length, events.length, 'nothing beyond the credit');
    assert.ok(!socket.log.some((m) => m.id === id), 'and no response');
  };
  await untilSpent(5);
  socket.notify('$/credit', { token: 'slow', n: 10 });
  await untilSpent(15);
  socket.notify('$/credit', { token: 'slow', n: 1000 });
  assert.ok((await socket.reply(id)).result);
  assert.deepEqual(addUp(socket.events('slow'), 1), expected);
  await socket.close();
});

test('a client that grants no more credit loses the request with -32008', async () => {
  const socket = await at.open();
  const id = socket.send('chat.completions.create', { ...endless, stream: { token: 'stuck', credit: 2 } });
  const reply = await socket.reply(id);
  assert.equal(reply.error?.code, -32008);
  assert.equal(socket.log.at(-1), reply);
  await at.untilFreed();
  await socket.close();
});

test('a reader that stalls loses the request with -32008, while another one is served', async () => {
  const [stalled, lively] = await Promise.all([at.open(), at.open()]);
  const id = stalled.send('chat.completions.create', { ...endless, n: 4, logprobs: true, top_logprobs: 20 });
  await stalled.event(id, 'delta');
  stalled.ws.pause();
  // Freed while the reader still sleeps: the daemon gave up on it by itself.
  const before = await at.stats();
  assert.ok((before.kv?.used_blocks ?? 0) > 0);
  const answer = await lively.call('chat.completions.create', { ...endless, stream: false, max_tokens: 8 });
  assert.equal(answer.usage?.completion_tokens, 8);
  await eventually('the blocks are free', async () => (await at.stats()).kv?.used_blocks === 0);
  stalled.ws.resume();
  const reply = await stalled.reply(id);
  assert.equal(reply.error?.code, -32008);
  await stalled.call('ping');
  assert.equal(stalled.log.filter((m) => m.id === id).length, 1);
  addUp(stalled.events(id), 4);
  await Promise.all([stalled.close(), lively.close()]);
});
