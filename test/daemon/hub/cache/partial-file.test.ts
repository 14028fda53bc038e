/** What has come of a file is known after any end: random writes and openings against a plain set of blocks. */
import assert from 'node:assert/strict';
import { appendFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { blockBytes, numBlocks, receivedBytes } from '../../../../config/models/hub-cache.js';
import { PartialFile } from '../../../../daemon/hub/cache/partial-file.js';
import { tempFolder } from '../../../helpers/temp-folder.js';

const hash = 'a'.repeat(64);

test('written blocks are there after the file is opened again, and their bytes are', async () => {
  const sizes = fc.integer({ min: 0, max: 6 * blockBytes + 3 });
  const writes = fc.array(fc.tuple(fc.nat(6), fc.integer({ min: 1, max: 3 * blockBytes }), fc.boolean()), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(sizes, writes, async (size, list) => {
      const folder = tempFolder();
      mkdirSync(join(folder, 'blobs'));
      const blob = join(folder, 'blobs', hash);
      const wanted = Buffer.alloc(size);
      const has = new Set<number>();
      let file = await PartialFile.open(blob, size);
      for (const [block, length, reopen] of list) {
        const start = block * blockBytes;
        const end = Math.min(size, start + length);
        if (start < end) {
          const bytes = Buffer.alloc(end - start, block + 1);
          bytes.copy(wanted, start);
          await file.write(start, bytes);
          const noted = await file.note(start, end);
          assert.ok(noted >= start && (noted % blockBytes === 0 || noted >= size));
          for (let b = block; b < numBlocks(size); b++) if (Math.min(size, (b + 1) * blockBytes) <= end) has.add(b);
        }
        if (reopen) {
          await file.close();
          file = await PartialFile.open(blob, size);
        }
        const bytesOf = (b: number): number => Math.min(blockBytes, size - b * blockBytes);
        const received = [...has].reduce((all, b) => all + bytesOf(b), 0);
        assert.equal(file.received, received);
        assert.equal(receivedBytes(folder, { hash, size }), received);
        assert.equal(file.complete, received === size);
        for (let b = 0; b < numBlocks(size); b++) assert.equal(file.has(b), has.has(b));
      }
      await file.close();
      const content = readFileSync(file.path);
      assert.equal(content.length, size);
      for (const b of has)
        assert.ok(content.subarray(b * blockBytes, (b + 1) * blockBytes).equals(wanted.subarray(b * blockBytes, (b + 1) * blockBytes)));
    }),
    { numRuns: 40 },
  );
});

test('a journal that is damaged, of another length, or beside another content is not believed', async () => {
  const size = 3 * blockBytes;
  const damage: readonly ((blob: string) => void)[] = [
    (blob) => writeFileSync(`${blob}.inferd-journal`, 'nonsense'),
    (blob) => truncateSync(`${blob}.inferd-journal`, 30),
    (blob) => truncateSync(`${blob}.inferd-partial`, size - 1),
    (blob) => appendFileSync(`${blob}.inferd-partial`, 'x'),
  ];
  for (const spoil of damage) {
    const blob = join(tempFolder(), hash);
    const file = await PartialFile.open(blob, size);
    await file.write(0, Buffer.alloc(blockBytes, 1));
    await file.note(0, blockBytes);
    assert.equal(file.received, blockBytes);
    await file.close();
    spoil(blob);
    const again = await PartialFile.open(blob, size);
    assert.equal(again.received, 0);
    await again.close();
    const other = await PartialFile.open(blob, size + 1);
    assert.equal(other.received, 0);
    await other.close();
  }
});
