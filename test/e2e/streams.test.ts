/** A stream says byte for byte what the whole answer says, and a seed gives the same tokens whatever else runs. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { mixedRequest, pooled } from '../helpers/wire/mixed-requests.js';
import { type Answer, addUp, type RpcSocket } from '../helpers/wire/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  // Small budget and pool, so that chunks, mixed steps and prefix hits all happen.
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=256', 'scheduler.max_num_sequences=48']);
});
after(() => at.close());

const NUM_REQUESTS = 200;

const textsOf = (answer: Answer) => (answer.choices ?? []).map((c) => c.message?.content ?? c.text ?? '');

test(`the deltas of ${NUM_REQUESTS} requests with mixed parameters add up to the unstreamed answers`, async () => {
  const [streaming, whole] = await Promise.all([at.open('jsonrpc.msgpack'), at.open()]);
  let bytes = 0;
  await pooled(NUM_REQUESTS, async (index) => {
    const { method, params, numChoices } = mixedRequest(index);
    const id = streaming.send(method, { ...params, stream: true });
    const answer = await whole.call(method, params);
    const end = await streaming.reply(id);
    assert.equal(end.error, undefined, `request ${index}: ${JSON.stringify(end.error)}`);
    const sum = addUp(streaming.events(id), numChoices);
    assert.deepEqual(sum.texts, textsOf(answer), `texts of request ${index}`);
    assert.deepEqual(
      sum.tokenIds,
      (answer.choices ?? []).map((c) => c.token_ids),
      `token ids of request ${index}`,
    );
    const finishes = (answer.choices ?? []).map((c) => c.finish_reason);
    assert.deepEqual(sum.finishes, finishes, `finish reasons of request ${index}`);
    assert.equal(end.result?.usage?.completion_tokens, answer.usage?.completion_tokens, `usage of request ${index}`);
    assert.ok((answer.usage?.completion_tokens ?? 0) <= numChoices * Number(params['max_tokens']));
    bytes += Buffer.byteLength(sum.texts.join(''));
  });
  assert.ok(bytes > 1000, 'the answers are not empty');
  const ended = new Set(streaming.log.filter((m) => m.method === undefined).map((m) => m.id));
  assert.equal(ended.size, NUM_REQUESTS, 'one response each');
  await Promise.all([streaming.close(), whole.close()]);
  await at.untilFreed();
});

/** Token ids of a sampled request. */
async function tokens(socket: RpcSocket, seed: number): Promise<readonly (readonly number[] | undefined)[]> {
  const params = { messages: [{ role: 'user', content: 'Tell me a story.' }], seed, temperature: 1, max_tokens: 24, n: 2 };
  const answer = await socket.call('chat.completions.create', { ...params, return_token_ids: true });
  return (answer.choices ?? []).map((c) => c.token_ids);
}

test('the same seed gives the same tokens alone and among 31 other requests', async () => {
  const socket = await at.open();
  const alone = await tokens(socket, 77);
  assert.notDeepEqual(alone[0], alone[1], 'the sequences of one request differ');
  const others = Array.from({ length: 31 }, (_, i) => socket.call(mixedRequest(i).method, mixedRequest(i).params));
  const among = await tokens(socket, 77);
  await Promise.all(others);
  assert.deepEqual(among, alone);
  assert.deepEqual(await tokens(socket, 77), alone, 'again, from the prefix cache');
  assert.notDeepEqual(await tokens(socket, 78), alone);
  await socket.close();
});

test('a pool so small that requests are preempted changes no token', async () => {
  const ask = (socket: RpcSocket, i: number) => {
    const params = { messages: [{ role: 'user', content: `Tell me a story about ${i} dogs.` }], seed: i, temperature: 1, ignore_eos: true };
    return socket.call('chat.completions.create', { ...params, max_tokens: 150, return_token_ids: true });
  };
  const indices = Array.from({ length: 12 }, (_, i) => i);
  const all = async (daemon: TestDaemon) => {
    const socket = await daemon.open();
    const answers = await Promise.all(indices.map((i) => ask(socket, i)));
    await socket.close();
    return answers.map((a) => a.choices?.[0]?.token_ids);
  };
  const expected = await all(at);
  const tight = await startTestDaemon(['cache.num_gpu_blocks_override=48', 'scheduler.max_model_len=512']);
  try {
    assert.deepEqual(await all(tight), expected);
    const { requests } = await tight.untilFreed();
    assert.ok((requests?.preempted_total ?? 0) > 0, 'the pool was small enough');
  } finally {
    await tight.close();
  }
});
