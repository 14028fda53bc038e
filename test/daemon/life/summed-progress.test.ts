/** The start-up of several ranks told as one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Progress } from '../../../actors/messages/control.js';
import { SummedProgress } from '../../../daemon/life/summed-progress.js';

test('ranks add up, and a phase begins when all have ended the one before', () => {
  const told: Progress[] = [];
  const sum = new SummedProgress(2, (progress) => told.push(progress));
  const [first, second] = [sum.of(0), sum.of(1)];
  first({ phase: 'weights', done: 5, total: 10 });
  second({ phase: 'weights', done: 1, total: 8 });
  first({ phase: 'weights', done: 10, total: 10 });
  first({ phase: 'kv', done: 0, total: 3 });
  second({ phase: 'weights', done: 8, total: 8 });
  second({ phase: 'kv', done: 3, total: 3 });
  first({ phase: 'kv', done: 3, total: 3 });
  assert.deepEqual(told, [
    { phase: 'weights', done: 5, total: 10 },
    { phase: 'weights', done: 6, total: 18 },
    { phase: 'weights', done: 11, total: 18 },
    { phase: 'weights', done: 18, total: 18 },
    { phase: 'kv', done: 3, total: 6 },
    { phase: 'kv', done: 6, total: 6 },
  ]);
});

test('one rank is told as it is', () => {
  const told: Progress[] = [];
  const progress: Progress = { phase: 'kv', done: 1, total: 2 };
  new SummedProgress(1, (p) => told.push(p)).of(0)(progress);
  assert.deepEqual(told, [progress]);
});
