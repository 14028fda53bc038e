import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Histogram } from '../../../actors/runtime/histogram.js';

test('each value counts at the first edge that it does not exceed', () => {
  const ascending = fc.uniqueArray(fc.integer({ min: 0, max: 30 }), { maxLength: 12 }).map((edges) => edges.sort((a, b) => a - b));
  fc.assert(
    fc.property(ascending, fc.array(fc.integer({ min: 0, max: 40 })), (edges, values) => {
      const histogram = new Histogram(edges);
      for (const value of values) histogram.observe(value);
      const want = [...edges, Number.POSITIVE_INFINITY].map(
        (edge, i) => values.filter((v) => v <= edge && v > (edges[i - 1] ?? Number.NEGATIVE_INFINITY)).length,
      );
      assert.deepEqual(histogram.snapshot(), { edges, counts: want, sum: values.reduce((a, b) => a + b, 0) });
    }),
  );
});
