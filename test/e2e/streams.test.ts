/** A stream says byte for byte what the whole answer says, and a seed gives the same tokens whatever else runs. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon.js';
import { type Answer, addUp, type RpcSocket } from '../helpers/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  // Small budget and pool, so that chunks, mixed steps and prefix hits all happen.
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=256', 'scheduler.max_num_sequences=48']);
});
after(() => at.close());

const NUM_REQUESTS = 200;
const IN_FLIGHT = 25;

const prompts = [
  'What is 12 + 30?',
  'Tell me a story about a fox.',
  'Repeat these words: red, green, blue, 日本語, 漢字',
  'Say it with an emoji: 🙂🚀 sun',
  'Write the word hello in capitals: größe straße',
  'Count from 1 to 20.',
  'Name a person as JSON.',
  '你好，世界！ 다시 한번 👩‍👩‍👧‍👦',
  'Who are you?',
  'Reverse the word lantern.',
] as const;

/** A request whose parameters are drawn from `index`: no two kinds of parameter always come together. */
function request(index: number): { readonly method: string; readonly params: Record<string, unknown>; readonly numChoices: number } {
  const pick = <T>(every: number, value: T): T | undefined => (index % every === every - 1 ? value : undefined);
  const prompt = prompts[index % prompts.length] ?? '';
  const n = pick(7, 2) ?? 1;
  const chat = index % 3 !== 0;
  const all = {
    ...(chat ? { messages: [{ role: 'user', content: prompt }] } : { prompt }),
    seed: index,
    max_tokens: 1 + ((index * 5) % 24),
    temperature: n > 1 ? 1 : [0, 0.6, 1, 1.6][index % 4],
    top_p: pick(3, 0.8),
    top_k: pick(5, 20),
    min_p: pick(8, 0.05),
    typical_p: pick(13, 0.9),
    repetition_penalty: pick(6, 1.2),
    frequency_penalty: pick(9, 0.5),
    presence_penalty: pick(10, -0.5),
    min_tokens: pick(4, 1),
    stop: pick(4, ['.', 'the', '日']),
    include_stop_str_in_output: pick(8, true),
    ignore_eos: pick(5, true),
    skip_special_tokens: pick(10, false),
    logit_bias: pick(11, { 220: 2, 15: -100 }),
    n: n === 1 ? undefined : n,
    logprobs: chat ? pick(9, true) : pick(9, 2),
    echo: chat ? undefined : pick(12, true),
    return_token_ids: true,
  };
  const params = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return { method: chat ? 'chat.completions.create' : 'completions.create', params, numChoices: n };
}

/** Runs `run` for 0 .. count-1 with a bounded number at a time. */
async function pooled(count: number, run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await run(next++);
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
}

const textsOf = (answer: Answer) => (answer.choices ?? []).map((c) => c.message?.content ?? c.text ?? '');

test(`the deltas of ${NUM_REQUESTS} requests with mixed parameters add up to the unstreamed answers`, async () => {
  const [streaming, whole] = await Promise.all([at.open('jsonrpc.msgpack'), at.open()]);
  let bytes = 0;
  await pooled(NUM_REQUESTS, async (index) => {
    const { method, params, numChoices } = request(index);
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
  const others = Array.from({ length: 31 }, (_, i) => socket.call(request(i).method, request(i).params));
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
