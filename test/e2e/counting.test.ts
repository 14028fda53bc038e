/** The counting oracle through a daemon on the CPU: requests at once, each in its own range, none disturbed. See test/gpu/oracle.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countInParallel, countingSettings, ranges } from '../helpers/daemon/counting.js';

const requests = 40;

for (const setting of countingSettings(requests)) {
  test(`${requests} requests count undisturbed: ${setting.name}`, async () => {
    const { together } = await countInParallel(requests, setting);
    assert.ok(together > 1, 'sequences ran together');
  });
}

test('the ranges of the largest oracle are all different', () => {
  assert.equal(ranges(128).length, 128);
});
