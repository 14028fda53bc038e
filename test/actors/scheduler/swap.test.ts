/** Preemption by swapping: what is saved, when it comes back, what happens when it cannot. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { prefersSwap, swapCostTokens } from '../../../actors/scheduler/preemption.js';
import type { SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import { deviceKinds } from '../../../native/device-kinds.js';
import type { PlanSummary } from '../../helpers/engine/plan-interpreter.js';
import { type Ask, Rig } from './rig.js';

const tokens = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => (first + i) % 40);
const long = (prompt: number[], maxTokens = 20): Ask => ({ prompt, maxTokens, ignoreEos: true });

/** Two sequences that outgrow eight blocks of four tokens. */
const tight: Partial<SchedulerOptions> = { numBlocks: 8, numSwapBlocks: 20, preemptionMode: 'swap', enablePrefixCaching: false };
function crowd(options: Partial<SchedulerOptions> = {}): Rig {
  const rig = new Rig({ ...tight, ...options });
  rig.admit(long(tokens(8), 16));
  rig.admit(long(tokens(7, 5), 12));
  return rig;
}

const swappingOut = (rig: Rig): PlanSummary[] => rig.plans.filter((p) => p.swapOuts.length > 0);
const swappingIn = (rig: Rig): PlanSummary[] => rig.plans.filter((p) => p.swapIns.length > 0);

/** Steps until a plan swaps out. */
function untilSwapped(rig: Rig): void {
  for (let i = 0; i < 100 && swappingOut(rig).length === 0; i++) {
    rig.schedule();
    rig.update();
  }
  assert.equal(swappingOut(rig).length, 1);
}

test('what gives way is copied to the host, comes back, and goes on without being computed again', () => {
  const rig = crowd();
  untilSwapped(rig);
  const { requests, kv } = rig.scheduler.stats();
  assert.deepEqual([requests.running, requests.waiting, requests.swapped], [1, 0, 1]);
  assert.deepEqual([kv.swap_total, kv.swap_used], [20, swappingOut(rig)[0]?.swapOuts.length]);
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
  rig.assertIdle();
  const back = swappingIn(rig)[0];
  const slot = back?.newSlots[0];
  assert.ok(slot);
  assert.deepEqual(
    back.swapIns.map(([host]) => host),
    swappingOut(rig)[0]?.swapOuts.map(([, host]) => host),
    'the same blocks come back',
  );
  const row = rig.plans.find((p) => p.step > back.step && p.rows.some((r) => r.slot === slot.slot))?.rows.find((r) => r.slot === slot.slot);
  assert.deepEqual(row, { slot: slot.slot, start: slot.tokens.length - 1, count: 1, flags: 0 }, 'only its last token is computed again');
  assert.equal(swappingOut(rig).length, rig.scheduler.stats().requests.preempted_total);
});

test('the first row after a swap in is in the next step, and a step that swaps in does not swap out', () => {
  const rig = new Rig({ ...tight, numBlocks: 12 });
  for (let i = 0; i < 9; i++) rig.admit(long(tokens(6, i * 3), 18));
  rig.run();
  assert.ok(swappingIn(rig).length > 2);
  for (const plan of swappingIn(rig)) {
    assert.equal(plan.swapOuts.length, 0);
    const back = plan.newSlots.filter((s) => s.tokens.length > 6);
    for (const { slot } of back) assert.ok(!plan.rows.some((r) => r.slot === slot));
  }
  for (let id = 1; id <= 9; id++) rig.assertAnswered(id);
});

test('swapped requests come back before new ones start, the oldest first', () => {
  const rig = crowd();
  untilSwapped(rig);
  rig.admit(long([1, 2, 3], 2));
  rig.run();
  const order = rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens[0]);
  assert.deepEqual(order.slice(0, 4), [0, 5, 5, 1]);
});

test('under the priority policy a more important request starts before a swapped one', () => {
  const rig = crowd({ policy: 'priority' });
  untilSwapped(rig);
  rig.admit({ ...long([1, 2, 3], 2), priority: -1 });
  rig.run();
  const order = rig.plans.flatMap((p) => p.newSlots).map((s) => s.tokens[0]);
  assert.ok(order.indexOf(1) < order.lastIndexOf(5));
  for (let id = 1; id <= 3; id++) rig.assertAnswered(id);
});

test('a host without room for a sequence leaves it to be computed again', () => {
  const rig = crowd({ numSwapBlocks: 2 });
  rig.run();
  assert.ok(rig.scheduler.stats().requests.preempted_total > 0);
  assert.equal(swappingOut(rig).length, 0);
  rig.assertAnswered(1);
  rig.assertAnswered(2);
  rig.assertIdle();
});

test('an abort, a stop and the death of a tokenizer free the host blocks of a swapped request', () => {
  const ends: readonly ((rig: Rig) => void)[] = [
    (rig) => rig.abort(2 as never),
    (rig) => rig.scheduler.stopped(2 as never, 0, rig.now),
    (rig) => rig.scheduler.dropOwner(0),
  ];
  for (const end of ends) {
    const rig = crowd();
    untilSwapped(rig);
    assert.ok(rig.scheduler.stats().kv.swap_used > 0);
    end(rig);
    const { kv, requests } = rig.scheduler.stats();
    assert.deepEqual([kv.swap_used, requests.swapped], [0, 0]);
    rig.scheduler.checkIntegrity();
    rig.run();
    rig.assertIdle();
  }
});

test('blocks that others hold and the prefix cache finds are neither copied nor brought back', () => {
  const rig = new Rig({ ...tight, numBlocks: 9, enablePrefixCaching: true });
  rig.admit(long(tokens(9), 20));
  for (let i = 0; i < 2; i++) {
    rig.schedule();
    rig.update();
  }
  rig.admit(long([...tokens(8), 30, 31], 18)); // shares two blocks
  untilSwapped(rig);
  const shared = 2;
  const out = swappingOut(rig)[0];
  const length = 10 + rig.told(2).tokens.length;
  assert.equal(out?.swapOuts.length, Math.ceil((length - 1) / 4) - shared);
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
  assert.ok(swappingIn(rig).length > 0);
  rig.assertIdle();
});

test('a sequence whose blocks are all still in the prefix cache comes back without a swap', () => {
  const rig = new Rig({ ...tight, numBlocks: 10, enablePrefixCaching: true });
  const old = rig.admit(long(tokens(12), 28));
  rig.admit(long(tokens(12, 20), 20));
  untilSwapped(rig);
  rig.abort(old); // gives way at once: nothing was overwritten but one block
  rig.run();
  rig.assertAnswered(2);
  assert.ok(swappingIn(rig).reduce((sum, p) => sum + p.swapIns.length, 0) <= 1);
  rig.assertIdle();
});

test('a prompt whose log-probabilities are still owed is computed again', () => {
  const rig = new Rig({ ...tight, maxBatchTokens: 9, maxSlots: 2, enableChunkedPrefill: true });
  rig.admit(long(tokens(4), 26));
  rig.schedule();
  rig.update();
  rig.admit({ prompt: tokens(24, 3), maxTokens: 4, promptLogprobs: 1, ignoreEos: true });
  rig.run();
  rig.assertAnswered(1);
  rig.assertAnswered(2);
  assert.deepEqual(
    rig.entry(2).promptPositions,
    Array.from({ length: 23 }, (_, i) => i + 1),
  );
});

test('siblings of a fork are swapped and come back one by one', () => {
  for (const enablePrefixCaching of [true, false]) {
    const rig = new Rig({ ...tight, numBlocks: 10, enablePrefixCaching });
    rig.admit(long(tokens(6), 12));
    rig.admit({ prompt: tokens(6, 11), maxTokens: 10, bestOf: 3, ignoreEos: true });
    rig.run();
    assert.ok(swappingOut(rig).length > 0);
    rig.assertAnswered(1);
    rig.assertAnswered(2);
    rig.assertIdle();
  }
});

test('without chunked prefill swapped sequences come back beside decodes', () => {
  const rig = crowd({ enableChunkedPrefill: false });
  rig.admit(long(tokens(5, 2), 9));
  rig.run();
  assert.ok(swappingIn(rig).length > 0);
  for (let id = 1; id <= 3; id++) rig.assertAnswered(id);
  rig.assertIdle();
});

test('auto swaps where that costs less than computing again', () => {
  assert.equal(prefersSwap('swap', 1, 1, 1e9), true);
  assert.equal(prefersSwap('swap', 0, 0, 0), false, 'there is nothing to save');
  assert.equal(prefersSwap('recompute', 1000, 10, 0), false);
  assert.equal(prefersSwap('auto', 33, 3, 10), true);
  assert.equal(prefersSwap('auto', 30, 3, 10), false);
  const cheap = crowd({ preemptionMode: 'auto', swapCostTokens: 2 });
  cheap.run();
  assert.ok(swappingOut(cheap).length > 0);
  const dear = crowd({ preemptionMode: 'auto', swapCostTokens: 5 });
  dear.run();
  assert.equal(swappingOut(dear).length, 0);
});

test('a block of a large model costs few tokens, one of a small model on a GPU many', () => {
  const llama8b = swapCostTokens(16 * 128 * 1024, 8.03e9, deviceKinds.cuda.operationsPerByte);
  assert.ok(llama8b > 2 && llama8b < 5, `${llama8b} of 16 tokens`);
  const tiny = swapCostTokens(16 * 8 * 1024, 2e6, deviceKinds.cuda.operationsPerByte);
  assert.ok(tiny > 16, `${tiny} of 16 tokens`);
  assert.ok(swapCostTokens(16 * 8 * 1024, 2e6, deviceKinds.cpu.operationsPerByte) < 16);
});
