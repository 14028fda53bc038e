import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cancellation } from '../../../../actors/runtime/cancellation.js';
import { Places } from '../../../../actors/tokenizer/work/places.js';

const askerOf = (client: number) => ({ client, cancellation: new Cancellation() });

/** Work that the test ends. */
function work() {
  let end: () => void = () => {};
  let begun = false;
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  return {
    run: () => {
      begun = true;
      return done;
    },
    end: () => end(),
    get begun() {
      return begun;
    },
  };
}
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('no more goes on at a time than there are places, and whoever ends, also by an error, makes room for the next', async () => {
  const places = new Places(2);
  const [a, b, c, d] = [work(), work(), work(), work()];
  const all = [a, b, c, d].map((one) => places.run(askerOf(0), one.run));
  assert.deepEqual([a.begun, b.begun, c.begun, places.busy], [true, true, false, true]);
  b.end();
  await settled();
  assert.deepEqual([c.begun, d.begun], [true, false]);
  c.end();
  a.end();
  await settled();
  assert.equal(d.begun, true);
  d.end();
  await Promise.all(all);
  assert.equal(places.busy, false);
  await assert.rejects(
    places.run(askerOf(0), () => {
      throw new Error('broken');
    }),
    { message: 'broken' },
  );
  assert.equal(places.busy, false);
});

test('whoever leaves while waiting is told at once, and its work never begins', async () => {
  const places = new Places(1);
  const [first, left, next] = [work(), work(), work()];
  const running = places.run(askerOf(0), first.run);
  const leaver = askerOf(1);
  const refused = assert.rejects(places.run(leaver, left.run), { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  const last = places.run(askerOf(2), next.run);
  leaver.cancellation.cancel();
  await refused;
  assert.equal(next.begun, false);
  first.end();
  await running;
  await settled();
  assert.deepEqual([left.begun, next.begun], [false, true]);
  next.end();
  await last;
});

test('work that nobody wants does not begin, though there is a place', async () => {
  const places = new Places(1);
  const leaver = askerOf(0);
  leaver.cancellation.cancel();
  const left = work();
  await assert.rejects(places.run(leaver, left.run), { message: 'Request cancelled' });
  assert.deepEqual([left.begun, places.busy], [false, false]);
});
