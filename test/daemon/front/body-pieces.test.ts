/** The bytes of a body stay what they are, in few pieces. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { BodyPieces } from '../../../daemon/front/body-pieces.js';
import { joined } from '../../../rpc/decode/pieces.js';
import { KeptAhead } from './kept-ahead.js';

test('a body is put together in its order, however it was cut', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.nat(3), fc.nat(100_000)), { maxLength: 60 }), (lengths) => {
      const parts = lengths.map((length, i) => Buffer.alloc(length, i + 1));
      const [pieces, ahead] = [new BodyPieces(), new KeptAhead()];
      const leaving = new BodyPieces(ahead);
      for (const part of parts) {
        pieces.add(part);
        leaving.add(Buffer.from(part));
      }
      assert.ok(Buffer.from(joined(pieces.take())).equals(Buffer.concat(parts)));
      assert.ok(ahead.whole(leaving.take()).equals(Buffer.concat(parts)));
    }),
  );
});

test('the parts of a usual body are kept as they came', () => {
  const pieces = new BodyPieces();
  const parts = [Buffer.from('{"prompt":'), Buffer.from('"x"}')];
  for (const part of parts) pieces.add(part);
  assert.deepEqual(
    pieces.take().map((piece, i) => piece === parts[i]),
    [true, true],
  );
});

test('a body of a million parts of a byte is some pieces', () => {
  const pieces = new BodyPieces();
  for (let i = 0; i < 1_000_000; i++) pieces.add(Buffer.of(i & 255));
  const taken = pieces.take();
  assert.equal(
    taken.reduce((sum, { length }) => sum + length, 0),
    1_000_000,
  );
  assert.ok(taken.length < 30, `${taken.length}`);
});

test('what was dropped is gone, here and where it went ahead', () => {
  const ahead = new KeptAhead();
  const pieces = new BodyPieces(ahead);
  for (let i = 0; i < 40; i++) pieces.add(Buffer.alloc(50_000, i));
  assert.equal(ahead.held, 1);
  pieces.drop();
  assert.deepEqual([pieces.take(), ahead.held], [[], 0]);
});
