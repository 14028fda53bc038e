import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RecentValues } from '../../../actors/scheduler/stats.js';
import { Rig } from './rig.js';

test('percentiles are those of the last values, sorted', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 0, max: 9 })),
      fc.integer({ min: 1, max: 12 }),
      fc.constantFrom(0, 0.5, 0.9, 0.99, 1),
      (values, capacity, p) => {
        const recent = new RecentValues(capacity);
        for (const v of values) recent.add(v);
        const kept = values.slice(-capacity).sort((a, b) => a - b);
        const want = kept.length === 0 ? 0 : kept[Math.max(0, Math.ceil(p * kept.length) - 1)];
        assert.equal(recent.percentile(p), want);
      },
    ),
  );
});

test('used, cached and free blocks add up to the pool at every moment', () => {
  const rig = new Rig({ numBlocks: 20 });
  const check = (): void => {
    const { kv } = rig.scheduler.stats();
    assert.equal(kv.used_blocks + kv.cached_blocks + kv.free_blocks, 20);
  };
  rig.admit({ prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9], maxTokens: 5, ignoreEos: true });
  rig.schedule();
  check();
  assert.equal(rig.scheduler.stats().kv.used_blocks, 3);
  rig.run();
  check();
  const { kv, tokens, step, requests } = rig.scheduler.stats();
  assert.deepEqual([kv.used_blocks, kv.cached_blocks], [0, 3]); // 9 prompt tokens and 4 of the 5 answered ones have KV
  assert.deepEqual([tokens.prompt_total, tokens.generated_total, tokens.prefix_hit_total], [9, 5, 0]);
  assert.deepEqual([requests.finished_total, step.p50_ms, step.p99_ms], [1, 1, 1]);
  assert.ok(step.count >= 5);
});

test('each step counts once, with the tokens that it computed', () => {
  const rig = new Rig({ maxBatchTokens: 4 });
  rig.admit({ prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9], maxTokens: 5, ignoreEos: true });
  rig.run();
  const { seconds, tokens } = rig.scheduler.steps();
  const { step } = rig.scheduler.stats();
  const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
  assert.deepEqual([total(seconds.counts), total(tokens.counts)], [step.count, step.count]);
  assert.equal(tokens.sum, 9 + 4); // the last token is not computed any more
  assert.deepEqual(tokens.counts.slice(0, 2), [step.count - 2, 2]); // up to 1 token, up to 8
  assert.ok(Math.abs(seconds.sum - step.count * 0.001) < 1e-9);
});

test('running and waiting count requests, not sequences', () => {
  const rig = new Rig({ maxSlots: 3 });
  rig.admit({ prompt: [1, 2], bestOf: 3, ignoreEos: true });
  rig.admit({ prompt: [1, 3], ignoreEos: true });
  rig.schedule();
  const { requests } = rig.scheduler.stats();
  assert.deepEqual([requests.running, requests.waiting, requests.swapped], [1, 1, 0]);
});
