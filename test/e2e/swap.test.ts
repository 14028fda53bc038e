/** Requests whose KV is on the host: their tokens are those they have alone, and a cancel or a crash leaves no block behind. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { addUp, type RpcSocket } from '../helpers/wire/rpc-socket.js';
import { story } from './story.js';

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon([
    'cache.num_gpu_blocks_override=40',
    'cache.swap_space_bytes=67108864',
    'scheduler.preemption_mode=swap',
    'scheduler.max_model_len=512',
    'scheduler.max_num_batched_tokens=64',
  ]);
});
after(() => at.close());

const params = (i: number) => story(i, 250);
const indices = Array.from({ length: 6 }, (_, i) => i);

async function eachAlone(socket: RpcSocket): Promise<(readonly number[] | undefined)[]> {
  const all: (readonly number[] | undefined)[] = [];
  for (const i of indices) all.push((await socket.call('chat.completions.create', params(i))).choices?.[0]?.token_ids);
  return all;
}

const start = (socket: RpcSocket): number[] =>
  indices.map((i) => socket.send('chat.completions.create', { ...params(i), stream: true }) as number);
const untilSwapped = (): Promise<void> => eventually('a request is swapped', async () => ((await at.stats()).requests?.swapped ?? 0) > 0);

test('all answers are those of requests that run alone, and a killed engine changes none', async () => {
  const socket = await at.open();
  const expected = await eachAlone(socket);
  assert.equal((await at.untilFreed()).requests?.preempted_total, 0);
  for (const kills of [false, true]) {
    const ids = start(socket);
    await untilSwapped();
    if (kills) {
      at.mayFail();
      at.daemon.engine.killActor('executor', 0);
    }
    for (const [i, id] of ids.entries()) {
      const reply = await socket.reply(id);
      assert.equal(reply.error, undefined);
      assert.deepEqual(addUp(socket.events(id), 1).tokenIds[0], expected[i], `request ${i}`);
    }
    assert.ok(((await at.untilFreed()).kv?.swap_total ?? 0) > 40);
  }
  await socket.close();
});

test('requests cancelled while they are swapped free what they hold on the host', async () => {
  const socket = await at.open();
  const ids = start(socket);
  await untilSwapped();
  assert.ok(((await at.stats()).kv?.swap_used ?? 0) > 0);
  for (const id of [...ids].reverse()) socket.notify('$/cancelRequest', { id });
  for (const id of ids) await socket.reply(id);
  assert.equal((await at.untilFreed()).kv?.swap_used, 0);
  const again = await socket.call('chat.completions.create', params(0));
  assert.equal(again.choices?.[0]?.token_ids?.length, 250);
  await socket.close();
});
