/** Swaps between the KV cache and the host pool of an engine: what plans may ask, and that contents survive. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { loadAddon } from '../../../native/index.js';
import { answer, blockSets, engineOptions, fixture, nativeError, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan, type PlanSpec } from '../../helpers/native/plan.js';

const pack = fixture('golden', 'llama3.1-gqa');
const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % 320);
const pairs = (from: readonly number[], to: readonly number[]) => from.map((src, i) => ({ src, dst: to[i] ?? -1 }));
const start = (slot: number, first: number, tokens: readonly number[]): PlanSpec => ({
  newSlots: [{ slot, tokens }],
  blockSets: blockSets(slot, first, 3),
  rows: [{ slot, start: 0, count: tokens.length }],
});
const last: PlanSpec = { rows: [{ slot: 0, start: 39, count: 1, flags: ROW_FLAG.rawLogits }], samples: [{ row: 0, slot: 0 }] };

test('a sequence that was swapped out, whose blocks another one wrote, and that came back answers to the bit as if it had stayed', () => {
  const engine = openEngine(pack, {}, 8, 6);
  runStep(engine, start(0, 0, prompt));
  const want = runStep(engine, last);
  runStep(engine, { freed: [0] });
  runStep(engine, start(0, 0, prompt));
  const host = [4, 1, 5];
  // The other one gets the blocks in the plan that swaps them out, and another way back is asked for before that has run.
  engine.submit(buildPlan({ freed: [0], ...start(1, 0, [...prompt].reverse()), swapOuts: pairs([0, 1, 2], host) }));
  engine.submit(
    buildPlan({
      newSlots: [{ slot: 0, tokens: prompt }],
      blockSets: [7, 3, 5].map((block, index) => ({ slot: 0, index, block })),
      swapIns: pairs(host, [7, 3, 5]),
      rows: [{ slot: 1, start: 39, count: 1 }],
      samples: [{ row: 0, slot: 1 }],
    }),
  );
  for (let i = 0; i < 2; i++) assert.equal(answer(engine).errorCode, 0);
  const got = runStep(engine, last);
  assert.deepEqual(got.samples, want.samples);
  assert.deepEqual(got.logits, want.logits);
  engine.close();
});

test('swaps come before copies and copies before swaps in, as in a plan', () => {
  const engine = openEngine(pack, {}, 8, 2);
  const answers = [false, true].map((moved) => {
    runStep(engine, start(0, 0, prompt));
    if (moved) {
      // Block 0 goes to the host and is copied over; its contents come back to where they were copied from.
      const blocks = [1, 0, 2].map((block, index) => ({ slot: 0, index, block }));
      runStep(engine, { swapOuts: pairs([0], [1]), copies: pairs([1], [0]), swapIns: pairs([1], [1]), blockSets: blocks });
    }
    const { samples, logits } = runStep(engine, last);
    runStep(engine, { freed: [0] });
    return { samples, logits };
  });
  assert.deepEqual(answers[1], answers[0]);
  engine.close();
});

test('an engine without swap space refuses plans that swap', () => {
  const engine = openEngine(pack, {}, 8);
  for (const spec of [{ swapOuts: pairs([0], [0]) }, { swapIns: pairs([0], [0]) }])
    assert.throws(() => engine.submit(buildPlan(spec)), nativeError('bad_plan', /number of swaps (out|in) is 1, outside 0\.\.0/));
  engine.close();
});

test('a swap space that the host cannot hold is refused with the arithmetic', () => {
  const engine = loadAddon().createEngine(engineOptions(pack));
  while (!engine.load(1 << 24).done);
  assert.throws(() => engine.allocateKv(4, -1), nativeError('usage', /numSwapBlocks must be a number of at least 0/));
  assert.throws(
    () => engine.allocateKv(4, 2 ** 26),
    nativeError('out_of_memory', /67108868 KV and swap blocks of 49152 bytes \(3 layers x .*\) need 3072\.00 GiB, and .* GiB are free/),
  );
  engine.allocateKv(4, 4);
  engine.close();
});
