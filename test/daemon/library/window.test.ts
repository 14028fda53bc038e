/** A window lets so many pieces of work run at a time, in the order they came, whatever becomes of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Window } from '../../../daemon/library/window.js';

test('never more run than fit, all run, in order, and those that fail give their place back', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.array(fc.record({ turns: fc.nat(4), fails: fc.boolean() }), { maxLength: 30 }),
      async (size, works) => {
        const window = new Window(size);
        const begun: number[] = [];
        let running = 0;
        const done = await Promise.allSettled(
          works.map(({ turns, fails }, i) =>
            window.run(async () => {
              begun.push(i);
              assert.ok(++running <= size);
              for (let t = 0; t < turns; t++) await Promise.resolve();
              running--;
              if (fails) throw new Error('as asked');
              return i;
            }),
          ),
        );
        assert.deepEqual(begun, [...works.keys()]);
        assert.deepEqual(
          done.map(({ status }) => status === 'rejected'),
          works.map(({ fails }) => fails),
        );
        assert.equal(await window.run(async () => 'free'), 'free');
      },
    ),
  );
});

test('who leaves while it waits is told at once, and the place goes to the next', async () => {
  const window = new Window(1);
  let end = (): void => {};
  const first = window.run(() => new Promise<void>((resolve) => (end = resolve)));
  const left = new AbortController();
  const waiting = window.run(async () => assert.fail('it has left'), left.signal);
  const next = window.run(async () => 'next', new AbortController().signal);
  const reason = new Error('no more');
  left.abort(reason);
  await assert.rejects(waiting, reason);
  await assert.rejects(
    window.run(async () => assert.fail('it has left before'), left.signal),
    reason,
  );
  end();
  await first;
  assert.equal(await next, 'next');
});
