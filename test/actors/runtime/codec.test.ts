import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { bytesOf, Codec, int32Of } from '../../../actors/messages/codec.js';

test('any batch of plain data survives the round trip', () => {
  const codec = new Codec();
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), (batch) => {
      // JSON text has no -0 and no __proto__ keys as data; neither do messages.
      const clean = JSON.parse(JSON.stringify(batch).replaceAll('__proto__', 'proto')) as unknown[];
      assert.deepEqual(codec.decode(codec.encode(clean)), clean);
    }),
    { numRuns: 300 },
  );
});

test('one decoder reads batches of several encoders in any order', () => {
  const [a, b, reader] = [new Codec(), new Codec(), new Codec()];
  const ones = [{ k: 'tokens', ids: [1, 2], indices: [0, 0] }];
  const others = [
    { k: 'refused', id: 7, failure: { kind: 'overloaded' } },
    { k: 'refused', id: 8, failure: { kind: 'internal', message: 'x' } },
  ];
  const packed = [a.encode(ones), b.encode(others), a.encode(others), b.encode(ones)];
  assert.deepEqual(
    packed.map((bytes) => reader.decode(bytes)),
    [ones, others, others, ones],
  );
});

test('a batch stays as it is while others are encoded and a copy of it is transferred', () => {
  const codec = new Codec();
  const first = codec.encode([{ k: 'abort', ids: [1] }]);
  const second = codec.encode([{ k: 'abort', ids: [2] }]);
  const copy = new Uint8Array(first);
  structuredClone(copy, { transfer: [copy.buffer] });
  assert.deepEqual(codec.decode(first), [{ k: 'abort', ids: [1] }]);
  assert.deepEqual(codec.decode(second), [{ k: 'abort', ids: [2] }]);
});

test('a batch is read from the beginning of a larger buffer, which may be used again', () => {
  const codec = new Codec();
  const room = Buffer.alloc(100, 0xc1);
  const batch = codec.encode([{ k: 'admit', text: 'a text of some length', row: Uint8Array.of(1, 2, 3) }]);
  room.set(batch);
  const decoded = codec.decode(room, batch.byteLength);
  room.fill(0);
  assert.deepEqual(decoded, [{ k: 'admit', text: 'a text of some length', row: Buffer.of(1, 2, 3) }]);
});

test('binary fields come out aligned and independent of the batch', () => {
  const codec = new Codec();
  const words = Int32Array.from([1, -2, 2 ** 31 - 1]);
  const batch = codec.encode([{ k: 'admit', pad: 'x', promptIds: bytesOf(words), row: bytesOf(words.subarray(1)) }]);
  const [message] = codec.decode<{ promptIds: Uint8Array; row: Uint8Array }>(batch);
  batch.fill(0);
  assert.ok(message);
  assert.deepEqual(int32Of(message.promptIds), words);
  assert.deepEqual(int32Of(message.row), words.subarray(1));
  assert.equal(message.promptIds.byteOffset % 4, 0);
});

test('int32Of copies what is not aligned and refuses what is no int32 body', () => {
  const bytes = new Uint8Array([9, 1, 0, 0, 0]);
  assert.deepEqual(int32Of(bytes.subarray(1)), Int32Array.from([1]));
  assert.throws(() => int32Of(bytes), RangeError);
});

test('bytes that are no batch are refused', () => {
  assert.throws(() => new Codec().decode(new Uint8Array([0x01])), /not an array/);
});
