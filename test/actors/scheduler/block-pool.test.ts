import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BlockPool } from '../../../actors/scheduler/block-pool.js';

test('a new pool hands out every block once, lowest id first, then nothing', () => {
  const pool = new BlockPool(3);
  assert.deepEqual([pool.take(), pool.take(), pool.take(), pool.take()], [0, 1, 2, -1]);
});

test('blocks without content go before cached ones, and cached ones least recently released first', () => {
  const pool = new BlockPool(4);
  for (let i = 0; i < 4; i++) pool.take();
  pool.release(2, true);
  pool.release(0, true);
  pool.release(3, false);
  pool.release(1, true);
  assert.deepEqual([pool.take(), pool.take(), pool.take(), pool.take()], [3, 2, 0, 1]);
});

test('a cached block that is shared again leaves the eviction order', () => {
  const pool = new BlockPool(2);
  pool.take();
  pool.take();
  pool.release(0, true);
  pool.release(1, true);
  pool.share(0);
  assert.deepEqual([pool.numFree, pool.numCached, pool.refCount(0)], [1, 1, 1]);
  assert.deepEqual([pool.take(), pool.take()], [1, -1]);
});

test('releasing a free block or sharing a vacant one is a broken invariant', () => {
  const pool = new BlockPool(2);
  assert.throws(() => pool.release(0, false), /nobody holds it/);
  assert.throws(() => pool.share(0), /holds nothing/);
  assert.throws(() => pool.share(9), /holds nothing/);
});

/** The obvious implementation: arrays and maps. */
class NaivePool {
  readonly refs = new Map<number, number>();
  vacant: number[];
  cached: number[] = [];

  constructor(size: number) {
    this.vacant = Array.from({ length: size }, (_, i) => size - 1 - i);
  }

  take(): number {
    const block = this.vacant.pop() ?? this.cached.shift() ?? -1;
    if (block !== -1) this.refs.set(block, 1);
    return block;
  }

  share(block: number): void {
    this.cached = this.cached.filter((b) => b !== block);
    this.refs.set(block, (this.refs.get(block) ?? 0) + 1);
  }

  release(block: number, keep: boolean): void {
    const refs = (this.refs.get(block) ?? 0) - 1;
    if (refs > 0) {
      this.refs.set(block, refs);
      return;
    }
    this.refs.delete(block);
    (keep ? this.cached : this.vacant).push(block);
  }
}

test('in any order of operations the pool behaves like lists and a map', () => {
  const operation = fc.record({ kind: fc.constantFrom('take', 'share', 'release', 'release'), pick: fc.nat(), keep: fc.boolean() });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 9 }), fc.array(operation, { maxLength: 80 }), (size, operations) => {
      const pool = new BlockPool(size);
      const naive = new NaivePool(size);
      for (const { kind, pick, keep } of operations) {
        const held = [...naive.refs.keys()];
        const shareable = [...held, ...naive.cached];
        if (kind === 'take') {
          assert.equal(pool.take(), naive.take());
        } else if (kind === 'share' && shareable.length > 0) {
          const block = shareable[pick % shareable.length] ?? 0;
          pool.share(block);
          naive.share(block);
        } else if (kind === 'release' && held.length > 0) {
          const block = held[pick % held.length] ?? 0;
          pool.release(block, keep);
          naive.release(block, keep);
        }
        pool.checkIntegrity();
        assert.equal(pool.numFree, naive.vacant.length + naive.cached.length);
        assert.equal(pool.numCached, naive.cached.length);
        for (let b = 0; b < size; b++) assert.equal(pool.refCount(b), naive.refs.get(b) ?? 0);
      }
    }),
    { numRuns: 300 },
  );
});
