/**
 * A daemon whose model is split over two GPUs and more, and one of its ranks throws, stalls or is killed while 32 streams run: each gets
 * one answer, in time, and the engine starts again, whether its kernels or NCCL carry the sums. Random weights; tells how long the end and
 * the start took. Needs two GPUs; takes as many as there are, up to 4, which is how many heads the model has.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { loadAddon } from '../../../native/index.js';
import { story } from '../../e2e/story.js';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { faultyRankModule, type RankFault } from '../../helpers/engine/faulty-rank.js';
import { eventually } from '../../helpers/eventually.js';
import { firstDevices, rankCounts } from '../../helpers/native/rank-counts.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { assertOneEndEach } from '../../helpers/wire/one-end.js';

const STREAMS = 32;
const limitMs = 1000;
/** Beside the limit: what is in flight ends, and the daemon notices. */
const marginMs = 2000;
const common = [
  'inference.device=cuda',
  'inference.load_dummy=true',
  `parallel.comm_timeout_ms=${limitMs}`,
  'cache.gpu_memory_utilization=0.2',
];

interface Split {
  readonly ranks: number;
  readonly allReduce: string;
}

async function started(t: TestContext, { ranks, allReduce }: Split, module?: string): Promise<TestDaemon> {
  const sets = [...common, firstDevices(ranks), `parallel.tensor_parallel_size=${ranks}`, `parallel.all_reduce=${allReduce}`];
  const at = await startTestDaemon(sets, module, process.env);
  t.after(() => at.close());
  return at;
}

/** Streams run until a rank fails by itself, or `strike` makes one fail. */
async function assertOneEnd(t: TestContext, at: TestDaemon, strike?: () => void): Promise<void> {
  at.mayFail();
  const socket = await at.open();
  const ids = Array.from({ length: STREAMS }, (_, i) => socket.send('chat.completions.create', { ...story(i, 400), stream: true }));
  if (strike !== undefined) for (const id of ids) await socket.event(id, 'delta');
  const struck = performance.now();
  strike?.();
  await assertOneEndEach(socket, ids);
  const ended = performance.now() - struck;
  await eventually('it is ready', async () => (await fetch(`${at.http}/ready`)).status === 200);
  t.diagnostic(`all ${STREAMS} ended after ${ended.toFixed(0)} ms, ready again after ${(performance.now() - struck).toFixed(0)} ms`);
  const again = await socket.call('chat.completions.create', story(1, 20));
  assert.equal(again.choices?.[0]?.token_ids?.length, again.usage?.completion_tokens);
  await at.untilFreed();
}

const splits = rankCounts()
  .filter((ranks) => ranks <= 4)
  .flatMap((ranks) => ['own', 'nccl'].map((allReduce): Split => ({ ranks, allReduce })));

for (const split of splits) {
  const skip = split.allReduce === 'nccl' && (loadAddon().ncclInfo().problem || false);
  const which = `one of ${split.ranks} ranks, summed by ${split.allReduce},`;
  describe(`${which} that fails under streams ends the engine once, which starts again`, { skip }, () => {
    for (const how of ['throw', 'sleep'] as const) {
      test(`${how} in a step`, async (t) => {
        const fault: RankFault = { rank: 1, where: 'step', how, ms: limitMs + marginMs, once: join(tempFolder(), 'struck') };
        await assertOneEnd(t, await started(t, split, faultyRankModule(fault)));
      });
    }

    for (const rank of [0, split.ranks - 1]) {
      test(`rank ${rank} killed from outside`, async (t) => {
        const at = await started(t, split);
        await assertOneEnd(t, at, () => at.daemon.engine.killActor('executor', rank));
      });
    }
  });
}
