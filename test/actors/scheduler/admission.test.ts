import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocksNeeded } from '../../../actors/scheduler/admission.js';
import type { SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import { type Ask, Rig } from './rig.js';

const tokens = (count: number): number[] => Array.from({ length: count }, (_, i) => i % 40);

function refusal(options: Partial<SchedulerOptions>, ask: Ask): { kind: string; message: string; data: unknown } | null {
  const rig = new Rig(options);
  const id = rig.admit(ask);
  const failure = rig.entry(id).refused?.failure;
  rig.run();
  rig.assertIdle();
  if (failure === undefined) rig.assertAnswered(id);
  return failure === undefined ? null : { kind: failure.kind, message: failure.message ?? '', data: failure.data };
}

test('prompt and answer may fill max_model_len but not exceed it', () => {
  assert.equal(refusal({ maxModelLen: 20 }, { prompt: tokens(12), maxTokens: 8 }), null);
  assert.deepEqual(refusal({ maxModelLen: 20 }, { prompt: tokens(13), maxTokens: 8 }), {
    kind: 'context_length_exceeded',
    message: 'The prompt has 13 tokens and max_tokens is 8: 21 exceeds the limit of 20.',
    data: { prompt_tokens: 13, max_tokens: 8, limit: 20 },
  });
});

test('a huge max_tokens does not wrap around the limit', () => {
  assert.equal(refusal({ maxModelLen: 20 }, { prompt: tokens(3), maxTokens: 2 ** 31 })?.kind, 'context_length_exceeded');
});

test('a request that needs exactly all blocks runs, one block more is refused', () => {
  assert.equal(refusal({ numBlocks: 5, blockSize: 4 }, { prompt: tokens(12), maxTokens: 8 }), null);
  const failure = refusal({ numBlocks: 5, blockSize: 4 }, { prompt: tokens(13), maxTokens: 8 });
  assert.equal(failure?.kind, 'out_of_memory');
  assert.equal(failure?.message, '13 prompt tokens and 8 new tokens need 6 KV blocks of 4 tokens, but there are 5.');
});

test('with best_of the prompt is counted once and the growth for every sequence', () => {
  assert.equal(blocksNeeded(12, 4, 3, 4), 3 + 3 * 1);
  assert.equal(blocksNeeded(13, 4, 3, 4), 3 + 3 * 2);
  assert.equal(blocksNeeded(13, 4, 1, 4), 5);
  assert.equal(refusal({ numBlocks: 9 }, { prompt: tokens(13), maxTokens: 4, bestOf: 3 }), null);
  assert.equal(refusal({ numBlocks: 8 }, { prompt: tokens(13), maxTokens: 4, bestOf: 3 })?.kind, 'out_of_memory');
});

test('best_of beyond the slots is refused', () => {
  assert.equal(refusal({ maxSlots: 3 }, { prompt: tokens(4), bestOf: 3 }), null);
  assert.match(
    refusal({ maxSlots: 3 }, { prompt: tokens(4), bestOf: 4 })?.message ?? '',
    /makes 4 sequences \(n or best_of\), but only 3 can run/,
  );
});

test('without chunked prefill a prompt may fill a step but not exceed it', () => {
  const off = { enableChunkedPrefill: false, maxBatchTokens: 16 };
  assert.equal(refusal(off, { prompt: tokens(16), maxTokens: 4 }), null);
  assert.match(refusal(off, { prompt: tokens(17), maxTokens: 4 })?.message ?? '', /17 tokens; without chunked prefill .* at most 16/);
  assert.equal(refusal({ maxBatchTokens: 16 }, { prompt: tokens(17), maxTokens: 4 }), null);
});

test('an empty prompt and max_tokens below 0 are refused', () => {
  assert.equal(refusal({}, { prompt: [] })?.kind, 'invalid_params');
  assert.equal(refusal({}, { prompt: [1], maxTokens: -1 })?.kind, 'invalid_params');
});

test('a prompt that is all that is wanted may fill max_model_len and all blocks', () => {
  const rig = new Rig({ maxModelLen: 20, numBlocks: 5, blockSize: 4 });
  const id = rig.admit({ prompt: tokens(20), maxTokens: 0 });
  rig.run();
  rig.assertIdle();
  assert.equal(rig.entry(id).refused, null);
  assert.equal(refusal({ maxModelLen: 20 }, { prompt: tokens(21), maxTokens: 0 })?.kind, 'context_length_exceeded');
  assert.equal(refusal({ numBlocks: 5, blockSize: 4 }, { prompt: tokens(21), maxTokens: 0 })?.kind, 'out_of_memory');
});

test('a refused request costs the others nothing', () => {
  const rig = new Rig({ numBlocks: 6, maxModelLen: 1000 });
  rig.admit({ prompt: tokens(100) });
  const good = rig.admit({ prompt: tokens(6) });
  rig.run();
  rig.assertAnswered(good);
});

test('free slots and max_queue more requests are taken, the next is told that it is too many', () => {
  const rig = new Rig({ maxSlots: 2, maxQueue: 3 });
  for (let i = 0; i < 5; i++) rig.admit({ prompt: tokens(4) });
  const sixth = rig.admit({ prompt: tokens(4) });
  assert.equal(rig.entry(sixth).refused?.failure.kind, 'overloaded');
  assert.match(rig.entry(sixth).refused?.failure.message ?? '', /^5 requests are waiting/);
  rig.run();
  for (let id = 1; id <= 5; id++) rig.assertAnswered(id);
});

test('a request that waits longer than the timeout is refused, one that has started never is', () => {
  const rig = new Rig({ maxSlots: 1, queueTimeoutMs: 500 });
  const first = rig.admit({ prompt: tokens(4), maxTokens: 20, ignoreEos: true });
  rig.schedule();
  const second = rig.admit({ prompt: tokens(4) });
  assert.equal(rig.scheduler.nextDeadlineMs(rig.now), 500);
  rig.now += 499;
  rig.schedule();
  assert.equal(rig.entry(second).refused, null);
  rig.now += 1;
  rig.schedule();
  assert.equal(rig.entry(second).refused?.failure.kind, 'overloaded');
  assert.equal(rig.entry(second).refused?.failure.message, 'The request waited 0.5 s for its turn; scheduler.queue_timeout_s is 0.5.');
  assert.equal(rig.scheduler.nextDeadlineMs(rig.now), Number.POSITIVE_INFINITY);
  rig.run();
  rig.assertAnswered(first);
});

test('admitting an id twice is a broken invariant', () => {
  const rig = new Rig();
  rig.admit({ prompt: [1, 2] });
  (rig as unknown as { nextId: number }).nextId = 1;
  assert.throws(() => rig.admit({ prompt: [1, 2] }), /admitted twice/);
});
