/** When `bench serve` sends its requests. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arrivalTimes, rampRate } from '../../../../../daemon/cli/bench/serve/arrivals.js';
import { Random } from '../../../../../daemon/cli/bench/serve/random.js';

const count = 20_000;

/** Mean of the gaps, and their deviation in means. */
function shapeOf(times: Float64Array): { readonly mean: number; readonly spread: number } {
  const gaps = [...times].slice(1).map((at, i) => at - (times[i] ?? 0));
  const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
  assert.ok(gaps.every((gap) => gap >= 0));
  return { mean, spread: Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length) / mean };
}

test('gaps have the mean of the rate and the spread of the burstiness', () => {
  for (const burstiness of [0.25, 1, 4]) {
    for (const rate of [0.5, 40]) {
      const times = arrivalTimes(count, { rate, burstiness, ramp: null }, new Random(5));
      assert.equal(times[0], 0);
      const { mean, spread } = shapeOf(times);
      assert.ok(Math.abs(mean * rate - 1) < 0.05, `mean gap ${mean} at ${rate}`);
      assert.ok(Math.abs(spread * Math.sqrt(burstiness) - 1) < 0.06, `spread ${spread} at burstiness ${burstiness}`);
    }
  }
});

test('a Poisson process has as many arrivals in half a mean gap as the exponential says', () => {
  const times = arrivalTimes(count, { rate: 1, burstiness: 1, ramp: null }, new Random(9));
  const early = [...times].slice(1).filter((at, i) => at - (times[i] ?? 0) < 0.5).length;
  assert.ok(Math.abs(early / (count - 1) - (1 - Math.exp(-0.5))) < 0.01);
});

test('an infinite rate sends all at once, and a seed gives the same times again', () => {
  assert.ok(arrivalTimes(100, { rate: Number.POSITIVE_INFINITY, burstiness: 1, ramp: null }, new Random(0)).every((at) => at === 0));
  const load = { rate: 3, burstiness: 2, ramp: null };
  const times = arrivalTimes(50, load, new Random(7));
  assert.deepEqual(arrivalTimes(50, load, new Random(7)), times);
  assert.notDeepEqual(arrivalTimes(50, load, new Random(8)), times);
  assert.notDeepEqual(arrivalTimes(50, load, new Random(7, 1)), times);
});

test('a ramp goes from its start rate to its end rate', () => {
  assert.equal(rampRate({ strategy: 'linear', from: 2, to: 10 }, 0.5), 6);
  assert.equal(rampRate({ strategy: 'exponential', from: 1, to: 16 }, 0.5), 4);
  const ramp = { strategy: 'linear', from: 1, to: 9 } as const;
  const times = arrivalTimes(count, { rate: Number.POSITIVE_INFINITY, burstiness: 1, ramp }, new Random(2));
  const rateOf = (from: number, to: number): number => (to - from) / ((times[to] ?? 0) - (times[from] ?? 0));
  assert.ok(Math.abs(rateOf(0, 1000) - 1.2) < 0.15);
  assert.ok(Math.abs(rateOf(count - 1001, count - 1) - 8.8) < 0.8);
});
