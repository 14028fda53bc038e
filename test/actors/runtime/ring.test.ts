import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { createDoorbell, listen, park } from '../../../actors/runtime/doorbell.js';
import { createRing, RingReader, RingWriter } from '../../../actors/runtime/ring.js';
import { checksum, type RingThreadData } from './ring-thread.js';

const MAX_ENTRY = 2000;

function openRing(capacityBytes: number, readers: number) {
  const memory = createRing({ capacityBytes, readers, maxEntryBytes: MAX_ENTRY });
  const writerBell = createDoorbell();
  const bells = Array.from({ length: readers }, () => createDoorbell());
  return {
    writer: new RingWriter(memory, bells),
    readers: bells.map((_, r) => new RingReader(memory, r, writerBell)),
    writerBell,
    bells,
    memory,
  };
}

const bytes = (length: number, seed: number): Uint8Array => Uint8Array.from({ length }, (_, i) => (i * 31 + seed) & 255);

test('a ring behaves like one unbounded queue per reader, whatever the order of writes and reads', () => {
  const operation = fc.oneof(
    fc.record({ op: fc.constant('write' as const), length: fc.oneof(fc.nat(40), fc.integer({ min: 0, max: MAX_ENTRY })) }),
    fc.record({ op: fc.constant('read' as const), reader: fc.nat(2) }),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(32, 64, 256, 1024),
      fc.integer({ min: 1, max: 3 }),
      fc.array(operation, { maxLength: 200 }),
      (capacity, n, ops) => {
        const { writer, readers } = openRing(capacity, n);
        const queues: Uint8Array[][] = readers.map(() => []);
        let seed = 0;
        for (const one of ops) {
          if (one.op === 'write') {
            if (!writer.resume()) continue; // back-pressure: an entry still waits
            const entry = bytes(one.length, seed++);
            writer.write(entry);
            for (const queue of queues) queue.push(entry);
          } else {
            const reader = readers[one.reader % n];
            const queue = queues[one.reader % n];
            assert.ok(reader && queue);
            const entry = reader.read();
            if (entry !== null) assert.deepEqual(entry, queue.shift());
            writer.resume();
          }
        }
        // Everything written arrives in the end.
        for (let round = 0; round < 10_000 && queues.some((q) => q.length > 0); round++) {
          writer.resume();
          for (const [r, reader] of readers.entries()) {
            const entry = reader.read();
            if (entry !== null) assert.deepEqual(entry, queues[r]?.shift());
          }
        }
        assert.deepEqual(
          queues.map((q) => q.length),
          queues.map(() => 0),
        );
        assert.equal(writer.busy, false);
        for (const reader of readers) assert.equal(reader.read(), null);
      },
    ),
    { numRuns: 200 },
  );
});

test('positions wrap around many times without harm', () => {
  const { writer, readers } = openRing(64, 1);
  for (let i = 0; i < 5000; i++) {
    const entry = bytes(i % 40, i);
    assert.equal(writer.write(entry), true);
    assert.deepEqual(readers[0]?.read(), entry);
  }
});

test('an entry larger than the ring crosses in fragments and is read as one', () => {
  const { writer, readers } = openRing(64, 2);
  const entry = bytes(1000, 3);
  assert.equal(writer.write(entry), false);
  assert.equal(writer.busy, true);
  const got: (Uint8Array | null)[] = [null, null];
  for (let i = 0; i < 100 && got.includes(null); i++) {
    for (const [r, reader] of readers.entries()) got[r] ??= reader.read()?.slice() ?? null;
    writer.resume();
  }
  assert.deepEqual(got, [entry, entry]);
});

test('the slowest reader holds the writer back, and rings it when there is room again', () => {
  const { writer, readers, writerBell } = openRing(64, 2);
  while (writer.write(bytes(16, 1)));
  const heard = listen(writerBell);
  for (let i = 0; i < 5; i++) readers[0]?.read();
  assert.equal(writer.resume(), false);
  readers[1]?.read();
  assert.notEqual(listen(writerBell), heard);
  assert.equal(writer.resume(), true);
});

test('an entry above the limit is a broken invariant, and so is a write while one waits', () => {
  const { writer } = openRing(64, 1);
  assert.throws(() => writer.write(new Uint8Array(MAX_ENTRY + 1)), { name: 'BrokenInvariant' });
  writer.write(bytes(500, 0));
  assert.throws(() => writer.write(bytes(1, 0)), { name: 'BrokenInvariant' });
});

test('two real threads read the same entries in the same order', async () => {
  const { writer, writerBell, bells, memory } = openRing(1024, 2);
  const entries = 3000;
  const workers = bells.map((bell, reader) => {
    const workerData: RingThreadData = { ring: memory, reader, bell, writerBell, entries };
    return new Worker(new URL('./ring-thread.js', import.meta.url), { workerData });
  });
  const answers = workers.map((worker) => once(worker, 'message') as Promise<[number]>);
  let hash = 0;
  for (let i = 0; i < entries; i++) {
    const entry = bytes((i * 37) % (i % 100 === 0 ? MAX_ENTRY : 200), i);
    hash = checksum(hash, entry);
    let heard = listen(writerBell);
    for (let done = writer.write(entry); !done; done = writer.resume()) {
      park(writerBell, heard, 500);
      heard = listen(writerBell);
    }
  }
  assert.deepEqual(
    (await Promise.all(answers)).map(([h]) => h),
    [hash, hash],
  );
});
