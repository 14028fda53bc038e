import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { blockBytes, numBlocks } from '../../../../config/models/hub-cache.js';
import { PartSize, Parts } from '../../../../daemon/hub/transfer/parts.js';

test('the parts of a file are its missing blocks, each once, in order, and no larger than asked', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 40 * blockBytes }),
      fc.array(fc.nat(40)),
      fc.integer({ min: 1, max: 9 }),
      (size, there, blocks) => {
        const has = new Set(there);
        const parts = new Parts(size, (block) => has.has(block));
        const got: number[] = [];
        for (let part = parts.take(blocks * blockBytes); part !== null; part = parts.take(blocks * blockBytes)) {
          assert.ok(part.end > part.start && part.end <= size && part.end - part.start <= blocks * blockBytes);
          for (let at = part.start; at < part.end; at += blockBytes) got.push(at / blockBytes);
        }
        const missing = Array.from({ length: numBlocks(size) }, (_, block) => block).filter((block) => !has.has(block));
        assert.deepEqual(got, missing);
      },
    ),
  );
});

test('parts are 1 MiB on all connections together where answers begin soon, and grow where they do not', () => {
  for (const connections of [1, 3, 8, 16]) {
    const size = new PartSize(connections, 2 ** 24);
    assert.ok(size.bytes * connections <= 2 ** 20);
    const small = size.bytes;
    for (let i = 0; i < 50; i++) size.came(i % 7 === 0 ? 500 : 2, 1);
    assert.equal(size.bytes, small, 'some slow answers change nothing');
    for (let i = 0; i < 50; i++) size.came(40, 5);
    assert.equal(size.bytes, 2 ** 24);
    for (let i = 0; i < 50; i++) size.came(40, 500);
    assert.equal(size.bytes, 2 ** 24);
    for (let i = 0; i < 50; i++) size.came(1, 1);
    assert.equal(size.bytes, small);
  }
});
