import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TimeBox } from '../../../../actors/tokenizer/template/time-box.js';

const box = new TimeBox();
const sleep = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
};

test('work that ends gives its value, and what it throws is thrown', () => {
  assert.deepEqual(
    box.run(() => 7, 100),
    { value: 7 },
  );
  assert.throws(() => box.run(() => JSON.parse('{'), 100), SyntaxError);
});

test('work that spins is killed, also when it catches everything', () => {
  const spin = (): never => {
    for (;;) {
      try {
        for (;;);
      } catch {
        // goes on
      }
    }
  };
  assert.equal(box.run(spin, 20), null);
  assert.deepEqual(
    box.run(() => 'after it', 100),
    { value: 'after it' },
  );
});

test('work that was kept waiting gets more time, but not for ever', () => {
  const work = (ms: number) => (): string => {
    sleep(ms);
    return 'done';
  };
  // Its last try has 1200 ms, far more than it needs: this thread may be kept waiting, too.
  assert.deepEqual(box.run(work(400), 300), { value: 'done' });
  assert.equal(box.run(work(10_000), 30), null);
});
