/** Divergences of distributions that are known, and of those that differ in nothing that counts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Divergence } from '../../../../daemon/cli/eval/divergence.js';

const logits = (...probabilities: number[]): Float32Array => Float32Array.from(probabilities, Math.log);
const close = (got: number, want: number): void => assert.ok(Math.abs(got - want) < 1e-6, `${got} for ${want}`);

test('the divergence is that of the other one from this one, in nats', () => {
  const d = new Divergence();
  d.add(logits(0.25, 0.75), logits(0.5, 0.5), 0);
  const { kl, same_top: same, perplexity, other_perplexity: other, tokens } = d.report();
  close(kl.mean, 0.5 * Math.log(0.5 / 0.25) + 0.5 * Math.log(0.5 / 0.75));
  close(perplexity, 4);
  close(other, 2);
  assert.deepEqual([tokens, same], [1, 0]);
});

test('a token that the other one never takes adds nothing, and positions without a next token no perplexity', () => {
  const d = new Divergence();
  d.add(logits(0.5, 0.25, 0.25), Float32Array.of(0, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY), null);
  close(d.report().kl.mean, Math.log(2));
  assert.equal(d.report().same_top, 1);
  assert.ok(Number.isNaN(d.report().perplexity));
});

test('mean, median, 99 % and largest are those of all positions', () => {
  const d = new Divergence();
  for (let i = 0; i < 200; i++) d.add(logits(i < 199 ? 0.5 : 0.25, 0.5), logits(0.5, 0.5), 0);
  const { kl } = d.report();
  close(kl.median, 0);
  close(kl.p99, 0);
  assert.ok(kl.max > 0.05);
  close(kl.mean, kl.max / 200);
});

test('whatever the logits, a model has no divergence from itself, nor from itself with all logits raised', () => {
  const values = fc.array(fc.float({ noNaN: true, min: -50, max: 50 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(values, fc.integer({ min: -8, max: 8 }), (own, raise) => {
      const d = new Divergence();
      d.add(Float32Array.from(own), Float32Array.from(own), 0);
      d.add(
        Float32Array.from(own, (v) => v + raise),
        Float32Array.from(own),
        null,
      );
      assert.ok(d.report().kl.max < 1e-4);
    }),
  );
});
