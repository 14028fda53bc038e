/** Many large answers at once: the event loop turns between a few slices, and each answer gets its turn. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SlicePump } from '../../../daemon/front/slice-pump.js';
import { eventually } from '../../helpers/eventually.js';
import { CountedSlices } from './counted-slices.js';

test('however many answers are written at once, a turn of the event loop writes a few slices, and they take turns', async () => {
  const workMs = 2;
  const slow = () => {
    for (const until = performance.now() + workMs; performance.now() < until; );
    return 'x';
  };
  const all = Array.from({ length: 30 }, () => new CountedSlices(4, slow));
  let ended = 0;
  const most: number[] = [];
  for (const slices of all) new SlicePump(slices, { write: () => true, done: () => ended++ });
  let before = 0;
  while (ended < all.length) {
    const made = all.reduce((sum, slices) => sum + slices.made, 0);
    most.push(made - before);
    before = made;
    const counts = all.filter((slices) => slices.closed === 0).map((slices) => slices.made);
    if (counts.length > 0) assert.ok(Math.max(...counts) - Math.min(...counts) <= 2, `taken: ${counts.join(' ')}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(Math.max(...most) <= 8, `${Math.max(...most)} slices in a turn`);
  assert.ok(all.every((slices) => slices.made === 4 && slices.closed === 1));
});

test('a target without room gets nothing until it says so, the last slice is marked, and the end is told once', async () => {
  const slices = new CountedSlices(3, String);
  const got: [string | Uint8Array, boolean][] = [];
  let done = 0;
  const pump = new SlicePump(slices, { write: (slice, last) => got.push([slice, last]) < 0, done: () => done++ });
  for (let expected = 1; expected <= 3; expected++) {
    await eventually('a slice', () => got.length === expected);
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(got.length, expected);
    pump.go();
    pump.go();
  }
  pump.stop();
  assert.deepEqual(got, [
    ['0', false],
    ['1', false],
    ['2', true],
  ]);
  assert.deepEqual([done, slices.closed], [1, 1]);
});
