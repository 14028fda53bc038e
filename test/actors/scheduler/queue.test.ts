import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { byAge, byTurn, OrderedList, rankOf } from '../../../actors/scheduler/queue.js';
import type { Sequence } from '../../../actors/scheduler/request.js';

interface Key {
  readonly rank: number;
  readonly arrivalMs: number;
  readonly turn: number;
  readonly ordinal: number;
  readonly index: number;
  readonly started: boolean;
}

/** The order looks at nothing else of a sequence. */
const sequence = ({ rank, arrivalMs, turn, ordinal, index, started }: Key): Sequence =>
  ({ index, request: { rank, arrivalMs, turn, ordinal, started } }) as unknown as Sequence;
const base: Key = { rank: 0, arrivalMs: 10, turn: 3, ordinal: 1, index: 0, started: false };

test('priority counts only under its policy', () => {
  assert.deepEqual([rankOf('fcfs', 5), rankOf('priority', 5)], [0, 5]);
});

test('age is rank, then arrival, then admission, then index', () => {
  const order = [{ rank: -1, arrivalMs: 99 }, {}, { index: 1 }, { ordinal: 2 }, { arrivalMs: 11, ordinal: 0 }];
  const sequences = order.map((key) => sequence({ ...base, ...key }));
  assert.deepEqual([...sequences].reverse().sort(byAge), sequences);
});

test('what has run before waits in front of what has not, within its rank', () => {
  const order = [{ rank: -1 }, { started: true, arrivalMs: 20 }, { arrivalMs: 5 }];
  const sequences = order.map((key) => sequence({ ...base, ...key }));
  assert.deepEqual([...sequences].reverse().sort(byTurn), sequences);
});

test('what has never run waits by turn before age, and what has run by age alone', () => {
  const started = { started: true };
  const order = [{ ...started, turn: 9 }, { ...started, turn: 1, arrivalMs: 11 }, { turn: 2, arrivalMs: 99 }, {}, { arrivalMs: 11 }];
  const sequences = order.map((key) => sequence({ ...base, ...key }));
  assert.deepEqual([...sequences].reverse().sort(byTurn), sequences);
});

test('an ordered list stays sorted and finds exactly its items', () => {
  const keys = fc.record({
    rank: fc.integer({ min: 0, max: 2 }),
    arrivalMs: fc.integer({ min: 0, max: 3 }),
    turn: fc.integer({ min: 0, max: 3 }),
    ordinal: fc.integer({ min: 0, max: 1000 }),
    index: fc.constant(0),
    started: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.uniqueArray(keys, { selector: (k) => k.ordinal }), fc.array(fc.nat()), (all, removals) => {
      const sequences = all.map(sequence);
      const list = new OrderedList(byTurn);
      for (const s of sequences) list.add(s);
      for (const pick of removals) {
        const s = sequences[pick % Math.max(1, sequences.length)];
        if (s === undefined) continue;
        const listed = list.items.includes(s);
        assert.equal(list.indexOf(s) !== -1, listed);
        assert.equal(list.remove(s), listed);
      }
      assert.deepEqual(list.items, [...list.items].sort(byTurn));
    }),
  );
});
