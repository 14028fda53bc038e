import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Cancellation } from '../../../../actors/runtime/cancellation.js';
import { PromptQueue } from '../../../../actors/tokenizer/work/prompt-queue.js';
import type { Asker } from '../../../../actors/tokenizer/work/waiting-line.js';

const askerOf = (client: number): Asker => ({ client, cancellation: new Cancellation() });

test('the first passes at once, the others one a turn of the event loop: the first of each client, then the second of each', async () => {
  const queue = new PromptQueue();
  const passed: string[] = [];
  const all = (
    [
      ['first', 9],
      ['many 1', 5],
      ['many 2', 5],
      ['many 3', 5],
      ['few 1', 1],
      ['few 2', 1],
      ['single', 3],
    ] as const
  ).map(async ([name, client]) => {
    await queue.pass(askerOf(client));
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
  assert.deepEqual(passed, ['first', 'many 1', 'few 1', 'single', 'many 2', 'few 2', 'many 3']);
});

test('whoever leaves while waiting is told at once and takes nobody’s turn', async () => {
  const queue = new PromptQueue();
  await queue.pass(askerOf(0));
  const leaver = askerOf(1);
  const left = assert.rejects(queue.pass(leaver), { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  let passed = false;
  const next = queue.pass(askerOf(2)).then(() => {
    passed = true;
  });
  leaver.cancellation.cancel();
  await left;
  assert.equal(passed, false, 'the event loop has not turned yet');
  await nextTurn();
  await next;
});

test('whoever comes when nobody waits passes at once again', async () => {
  const queue = new PromptQueue();
  await queue.pass(askerOf(0));
  await nextTurn();
  let passed = false;
  void queue.pass(askerOf(7)).then(() => {
    passed = true;
  });
  await Promise.resolve();
  await Promise.resolve();
  assert.ok(passed);
});
