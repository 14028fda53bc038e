/** Requests whose answer is a pooled hidden state: what is planned for them, and what stands in their way. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { Rig } from './rig.js';

const tokens = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => (first + i) % 40);
const rowsOf = (rig: Rig): (readonly [start: number, count: number, flags: number])[] =>
  rig.plans.flatMap((plan) => plan.rows.map(({ start, count, flags = 0 }) => [start, count, flags] as const));

test('the last state comes with the row that ends the prompt, and nothing is sampled', () => {
  const rig = new Rig({ maxBatchTokens: 8 });
  const id = rig.admit({ prompt: tokens(19), pooling: 'last' });
  rig.run();
  rig.assertAnswered(id);
  rig.assertIdle();
  assert.deepEqual(rowsOf(rig), [
    [0, 8, 0],
    [8, 8, 0],
    [16, 3, ROW_FLAG.pool],
  ]);
  assert.ok(rig.plans.every((plan) => plan.samples.length === 0));
  assert.deepEqual(
    rig.entry(id).started.map((s) => s.cachedTokens),
    [0],
  );
  const { requests, tokens: counted } = rig.scheduler.stats();
  assert.deepEqual([requests.finished_total, counted.prompt_total, counted.generated_total], [1, 19, 0]);
});

test('a mean adds up every row, a chunk of one token too', () => {
  const rig = new Rig({ maxBatchTokens: 9 });
  const id = rig.admit({ prompt: tokens(19), pooling: 'mean' });
  rig.run();
  rig.assertAnswered(id);
  assert.deepEqual(rowsOf(rig), [
    [0, 9, ROW_FLAG.poolSum],
    [9, 9, ROW_FLAG.poolSum],
    [18, 1, ROW_FLAG.poolSum | ROW_FLAG.pool],
  ]);
});

test('the last state is found behind a cached prefix, a mean computes all of it, and both leave their blocks to others', () => {
  const rig = new Rig();
  const prompt = tokens(14);
  const first = rig.admit({ prompt, pooling: 'mean' });
  rig.run();
  const last = rig.admit({ prompt, pooling: 'last' });
  rig.run();
  const mean = rig.admit({ prompt, pooling: 'mean' });
  rig.run();
  const answer = rig.admit({ prompt });
  rig.run();
  for (const id of [first, last, mean, answer]) rig.assertAnswered(id);
  const cached = [first, last, mean, answer].map((id) => rig.entry(id).started[0]?.cachedTokens);
  assert.deepEqual(cached, [0, 12, 0, 12]);
});

test('a request that is pooled shares steps with answers that are generated, whole prompts or not', () => {
  for (const enableChunkedPrefill of [true, false]) {
    const rig = new Rig({ maxBatchTokens: 16, enableChunkedPrefill });
    const ids = [
      rig.admit({ prompt: tokens(5), maxTokens: 12, ignoreEos: true }),
      rig.admit({ prompt: tokens(16, 3), pooling: 'mean' }),
      rig.admit({ prompt: tokens(7, 9), pooling: 'last' }),
      rig.admit({ prompt: [4], pooling: 'mean' }),
      rig.admit({ prompt: tokens(15, 2), maxTokens: 5 }),
    ];
    rig.run();
    for (const id of ids) rig.assertAnswered(id);
    rig.assertIdle();
  }
});

test('what gives way is pooled anew from the first token, and a mean is never swapped', () => {
  for (const pooling of ['last', 'mean'] as const) {
    const rig = new Rig({ numBlocks: 16, numSwapBlocks: 64, preemptionMode: 'swap', enablePrefixCaching: false, maxBatchTokens: 10 });
    const old = rig.admit({ prompt: tokens(8), maxTokens: 50, ignoreEos: true });
    for (let i = 0; i < 9; i++) {
      rig.schedule();
      rig.update();
    }
    const young = rig.admit({ prompt: tokens(40, 5), pooling });
    rig.run();
    rig.assertAnswered(old);
    rig.assertAnswered(young);
    rig.assertIdle();
    const begun = rig.plans.flatMap((plan) => plan.rows).filter((row) => row.start === 0).length;
    if (pooling === 'mean') assert.ok(begun >= 2 && rig.plans.every((plan) => plan.swapOuts.length === 0));
  }
});

test('a request that is aborted in the middle of its prompt frees its blocks and is told nothing', () => {
  const rig = new Rig({ maxBatchTokens: 8 });
  const id = rig.admit({ prompt: tokens(30), pooling: 'mean' });
  rig.schedule();
  rig.schedule();
  rig.update();
  rig.abort(id);
  rig.run();
  assert.equal(rig.entry(id).pooled, null);
  assert.equal(rig.scheduler.stats().requests.aborted_total, 1);
  rig.assertIdle();
});

test('a prompt may be as long as the engine takes, and is refused beyond that', () => {
  const rig = new Rig({ maxModelLen: 32 });
  const fits = rig.admit({ prompt: tokens(32), pooling: 'mean' });
  const tooLong = rig.admit({ prompt: tokens(33), pooling: 'mean' });
  rig.run();
  rig.assertAnswered(fits);
  const { refused } = rig.entry(tooLong);
  assert.equal(refused?.failure.kind, 'context_length_exceeded');
  assert.deepEqual(refused?.failure.data, { prompt_tokens: 33, max_tokens: 0, limit: 32 });
});
