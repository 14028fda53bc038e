/**
 * The counting oracle through a daemon on CUDA: 128 requests at once, each in its own range, none disturbed, with decode steps recorded as
 * graphs and not, in chunks, with prefix hits, and in pools so small that sequences are computed again or swapped.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countInParallel, countingSettings } from '../helpers/daemon/counting.js';

const requests = 128;

for (const eager of [false, true]) {
  for (const setting of countingSettings(requests)) {
    test(`${requests} requests count undisturbed, ${eager ? 'no graphs' : 'graphs'}: ${setting.name}`, async (t) => {
      const more = ['inference.device=cuda', `inference.enforce_eager=${eager}`];
      const { stats, together, swapped } = await countInParallel(requests, setting, more);
      const { requests: r, tokens, kv, step } = stats;
      t.diagnostic(
        `${together} at once, ${r.preempted_total} preempted, ${swapped} blocks swapped at once, ${tokens.prefix_hit_total} tokens from the ` +
          `prefix cache, ${kv.total_blocks} blocks, ${step.count} steps of ${step.p50_ms.toFixed(2)} ms`,
      );
      if (setting.sets.some((set) => set.includes('override'))) return;
      assert.ok(together > requests / 2, `only ${together} sequences were seen running together`);
    });
  }
}
