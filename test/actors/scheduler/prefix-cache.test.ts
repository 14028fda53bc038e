import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PrefixCache, ROOT } from '../../../actors/scheduler/prefix-cache.js';

const ids = (...values: number[]): Int32Array => Int32Array.from(values);

test('a published block is found by its tokens and the prefix before it, and only so', () => {
  const cache = new PrefixCache(8, 2);
  const first = cache.publish(5, ROOT, ids(1, 2), 0);
  const second = cache.publish(3, first, ids(0, 3, 4), 1);
  assert.equal(cache.find(ROOT, ids(1, 2), 0), 5);
  assert.equal(cache.find(first, ids(3, 4), 0), 3);
  assert.equal(cache.find(ROOT, ids(3, 4), 0), -1);
  assert.equal(cache.find(second, ids(3, 4), 0), -1);
  assert.equal(cache.find(first, ids(3, 5), 0), -1);
});

test('equal tokens after different prefixes are different content', () => {
  const cache = new PrefixCache(8, 1);
  const a = cache.publish(0, ROOT, ids(1), 0);
  const b = cache.publish(1, ROOT, ids(2), 0);
  cache.publish(2, a, ids(9), 0);
  cache.publish(3, b, ids(9), 0);
  assert.equal(cache.find(a, ids(9), 0), 2);
  assert.equal(cache.find(b, ids(9), 0), 3);
});

test('a copy of published content shares its serial, so the chain outlives either of them', () => {
  const cache = new PrefixCache(8, 1);
  const serial = cache.publish(0, ROOT, ids(1), 0);
  assert.equal(cache.publish(1, ROOT, ids(1), 0), serial);
  cache.publish(2, serial, ids(5), 0);
  cache.forget(0);
  assert.equal(cache.find(ROOT, ids(1), 0), 1);
  assert.equal(cache.find(cache.serialOf(1), ids(5), 0), 2);
});

test('content that was forgotten and computed anew is not the parent of old children', () => {
  const cache = new PrefixCache(8, 1);
  const old = cache.publish(0, ROOT, ids(1), 0);
  cache.publish(1, old, ids(2), 0);
  cache.forget(0);
  const fresh = cache.publish(0, ROOT, ids(1), 0);
  assert.notEqual(fresh, old);
  assert.equal(cache.find(fresh, ids(2), 0), -1);
});

test('publishing a block again keeps its serial; forgetting an unpublished one does nothing', () => {
  const cache = new PrefixCache(4, 1);
  const serial = cache.publish(0, ROOT, ids(1), 0);
  assert.equal(cache.publish(0, ROOT, ids(1), 0), serial);
  cache.forget(2);
  assert.equal(cache.size, 1);
});

/** Everything has one hash. */
class CollidingCache extends PrefixCache {
  protected override hash(): number {
    return -1;
  }
}

test('content whose hashes collide is told apart by tokens and prefix', () => {
  const cache = new CollidingCache(8, 1);
  const a = cache.publish(0, ROOT, ids(1), 0);
  const b = cache.publish(1, ROOT, ids(2), 0);
  cache.publish(2, b, ids(3), 0);
  assert.equal(cache.find(ROOT, ids(2), 0), 1);
  assert.equal(cache.find(ROOT, ids(3), 0), -1);
  assert.equal(cache.find(a, ids(3), 0), -1);
  assert.equal(cache.find(b, ids(3), 0), 2);
});

test('in any order of operations the cache behaves like a map from parent and tokens to blocks', () => {
  const numBlocks = 7; // 16 cells: runs of probes collide and wrap
  const operation = fc.record({
    kind: fc.constantFrom('publish', 'publish', 'forget', 'find'),
    block: fc.integer({ min: 0, max: numBlocks - 1 }),
    parent: fc.nat(),
    tokens: fc.tuple(fc.integer({ min: 0, max: 2 }), fc.integer({ min: -1, max: 1 })),
  });
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 120 }), fc.boolean(), (operations, colliding) => {
      const cache = colliding ? new CollidingCache(numBlocks, 2) : new PrefixCache(numBlocks, 2);
      const naive = new Map<number, { key: string; serial: number }>();
      const serials = [ROOT];
      for (const { kind, block, parent, tokens } of operations) {
        const before = serials[parent % serials.length] ?? ROOT;
        const key = `${before}:${tokens.join()}`;
        const twins = [...naive].filter(([, v]) => v.key === key);
        if (kind === 'forget') {
          cache.forget(block);
          naive.delete(block);
        } else if (kind === 'publish') {
          const known = naive.get(block)?.serial ?? twins[0]?.[1].serial;
          const serial = cache.publish(block, before, ids(...tokens), 0);
          if (known !== undefined) assert.equal(serial, known);
          else assert.ok(!serials.includes(serial), 'new content has a new serial');
          serials.push(serial);
          if (!naive.has(block)) naive.set(block, { key, serial });
        } else {
          const found = cache.find(before, ids(...tokens), 0);
          if (twins.length === 0) assert.equal(found, -1);
          else assert.ok(twins.some(([b]) => b === found));
        }
        cache.checkIntegrity();
        assert.equal(cache.size, naive.size);
        for (let b = 0; b < numBlocks; b++) assert.equal(cache.holds(b), naive.has(b));
      }
    }),
    { numRuns: 300 },
  );
});
