/** From a pooled hidden state to what clients read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { InferdError } from '../../../actors/messages/errors.js';
import { embeddingOf, encoded } from '../../../rpc/embeddings/vector.js';

const state = (...values: number[]): Float32Array => Float32Array.from(values);
const lengthOf = (values: Float32Array): number => Math.hypot(...values);

test('an embedding has the direction of its state and the length 1, after it was cut too', () => {
  assert.deepEqual(embeddingOf(state(3, 4), 2), state(0.6, 0.8));
  assert.deepEqual(embeddingOf(state(3, 4, 12), 2), state(0.6, 0.8));
  assert.deepEqual(embeddingOf(state(-7, 1, 1), 1), state(-1));
  const numbers = fc.integer({ min: -10_000, max: 10_000 });
  fc.assert(
    fc.property(fc.array(numbers, { minLength: 1, maxLength: 40 }), fc.nat(), (values, pick) => {
      const whole = Float32Array.from(values);
      const dimensions = 1 + (pick % values.length);
      const made = embeddingOf(whole, dimensions);
      assert.equal(made.length, dimensions);
      if (lengthOf(whole.subarray(0, dimensions)) === 0) return; // without a direction
      assert.ok(Math.abs(lengthOf(made) - 1) < 1e-6, `length ${lengthOf(made)}`);
      const again = embeddingOf(embeddingOf(whole, values.length), dimensions);
      for (const [i, x] of made.entries()) assert.ok(Math.abs(x - (again[i] ?? Number.NaN)) < 1e-6);
    }),
  );
});

test('zeros stay zeros, and what is no number is an error', () => {
  assert.deepEqual(embeddingOf(state(0, 0, 5), 2), state(0, 0));
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(
      () => embeddingOf(state(1, wrong), 2),
      (error) => error instanceof InferdError && error.failure.kind === 'engine_failure',
    );
  }
});

test('numbers and base64 say the same', () => {
  const made = embeddingOf(state(1, -2, 3.3, 1e-9), 4);
  const bytes = Buffer.from(String(encoded(made, 'base64')), 'base64');
  assert.deepEqual(
    made,
    Float32Array.from({ length: 4 }, (_, i) => bytes.readFloatLE(4 * i)),
  );
  assert.deepEqual(Float32Array.from(JSON.parse(JSON.stringify(encoded(made, 'float'))) as number[]), made);
});
