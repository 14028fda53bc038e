/** The executor's loop on this thread, with an engine that the test makes; the test plays scheduler and supervisor. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import { type ExecutorStart, runExecutor } from '../../../actors/executor/actor.js';
import { PLAN } from '../../../actors/messages/step.js';
import { Control } from '../../../actors/runtime/actor.js';
import { createDoorbell, listen } from '../../../actors/runtime/doorbell.js';
import { createRing, RingReader, RingWriter } from '../../../actors/runtime/ring.js';

/** Long enough that every step of this test ends while it is looked for. */
const SPIN_US = 600_000_000;
/** Native waits that find a step still running. */
const WAITS = 4;

/** A module whose steps are over after WAITS waits each. It ends the loop by an error once all are. */
function moduleOf(steps: number): string {
  return `data:text/javascript,${encodeURIComponent(`
    export function createEngine() {
      let pending = 0, waits = 0, done = 0;
      return {
        load: () => ({ doneBytes: 1, totalBytes: 1, done: true }),
        info: () => ({ blockBytes: 1024, freeBytes: 2 ** 30, totalBytes: 2 ** 30, stepBytes: 0, hostFreeBytes: 2 ** 30, kvDtype: 'f32', parameters: 1, weightBytes: 1 }),
        allocateKv() {},
        submit() { pending++; },
        wait(result) {
          if (done === ${steps}) throw new Error('all steps are over');
          if (++waits <= ${WAITS}) return 0;
          waits = 0; pending--; done++;
          result.fill(0, 0, 64);
          return 64;
        },
        pending: () => pending,
        close: () => true,
      };
    }`)}`;
}

/** Rings of the scheduler's bell by an executor that runs so many steps of one size, one after the other. */
async function ringsOf(steps: number, spinUs: number): Promise<{ rings: number; results: number }> {
  const { port1, port2 } = new MessageChannel();
  const bell = createDoorbell();
  const schedulerBell = createDoorbell();
  const spec = { capacityBytes: 2 ** 16, readers: 1, maxEntryBytes: 2 ** 12 };
  const plans = createRing(spec);
  const results = createRing(spec);
  const writer = new RingWriter(plans, [bell]);
  // One step at a time, as a plan counts on the results of all before it; the last is the one that ends the loop.
  for (let step = 1; step <= steps + 1; step++) {
    const plan = new Int32Array(PLAN.headerWords);
    plan[PLAN.step] = step;
    plan[PLAN.numTokens] = 1;
    writer.write(new Uint8Array(plan.buffer));
  }
  const start: ExecutorStart = {
    options: {
      ...{ modelPath: '/nowhere', backend: 'cpu', deviceId: 0, threads: 1, weightDtype: 'auto', quantization: 'none', kvDtype: 'f32' },
      ...{
        blockSize: 16,
        maxSlots: 1,
        maxBatchTokens: 16,
        maxModelLen: 64,
        slidingWindow: 0,
        loadDummy: false,
        rank: 0,
        worldSize: 1,
        isa: 'auto',
      },
    },
    kv: {
      utilization: 0.5,
      numBlocksOverride: null,
      preemptionMode: 'recompute',
      swapBytes: null,
      swapFraction: null,
      groups: 1,
      loading: 0,
    },
    engineModule: moduleOf(steps),
    bell,
    schedulerBell,
    plans,
    results,
    lockstep: null,
    closeLimitMs: 1000,
    spinUs,
  };
  const before = listen(schedulerBell);
  await assert.rejects(runExecutor(start, new Control(port2, {})), /all steps are over/);
  const reader = new RingReader(results, 0, bell);
  let read = 0;
  while (reader.read() !== null) read++;
  port1.close();
  return { rings: listen(schedulerBell) - before, results: read };
}

test('the scheduler is woken once for each step whose end can be foreseen, before its result comes', async () => {
  const steps = 6;
  // Two steps are needed to know how long the next one takes.
  assert.deepEqual(await ringsOf(steps, SPIN_US), { rings: steps + (steps - 2), results: steps });
});

test('an executor that does not look wakes the scheduler with results alone', async () => {
  assert.deepEqual(await ringsOf(5, 0), { rings: 5, results: 5 });
});
