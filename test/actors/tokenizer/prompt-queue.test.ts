import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PromptQueue } from '../../../actors/tokenizer/prompt-queue.js';

test('the first passes at once, the others one a turn of the event loop, the smallest turn first and equals as they came', async () => {
  const queue = new PromptQueue();
  const passed: string[] = [];
  const all = (
    [
      ['first', 9],
      ['late', 5],
      ['early', 1],
      ['early too', 1],
      ['middle', 3],
    ] as const
  ).map(async ([name, turn]) => {
    await queue.pass(turn);
    passed.push(name);
  });
  await Promise.resolve();
  await Promise.resolve();
  assert.deepEqual(passed, ['first'], 'before the event loop has turned');
  const counts: number[] = [];
  while (passed.length < all.length) {
    await nextTurn();
    counts.push(passed.length);
  }
  assert.ok(
    counts.every((count, i) => count - (counts[i - 1] ?? 1) <= 1),
    `${counts}`,
  );
  assert.deepEqual(passed, ['first', 'early', 'early too', 'middle', 'late']);
});

test('whoever comes when nobody waits passes at once again', async () => {
  const queue = new PromptQueue();
  await queue.pass(0);
  await nextTurn();
  let passed = false;
  void queue.pass(7).then(() => {
    passed = true;
  });
  await Promise.resolve();
  await Promise.resolve();
  assert.ok(passed);
});
