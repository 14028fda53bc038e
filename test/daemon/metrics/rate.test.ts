import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Rate } from '../../../daemon/metrics/rate.js';

test('a rate is that since it was asked before; who asks within a second is told the same', () => {
  const rate = new Rate(0);
  assert.equal(rate.of(50, 500), 0);
  assert.equal(rate.of(100, 2000), 50);
  assert.equal(rate.of(900, 2999), 50);
  assert.equal(rate.of(1100, 4000), 500);
  assert.equal(rate.of(1100, 6000), 0);
});
