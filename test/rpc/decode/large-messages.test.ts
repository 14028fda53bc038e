/** Parts of a large message that go to the thread ahead of its end: it is the message that it would be in one piece, or is forgotten. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Arriving } from '../../../rpc/decode/arriving.js';
import type { TextLimits } from '../../../rpc/decode/cut-texts.js';
import { aheadBytes, LargeMessages } from '../../../rpc/decode/large-messages.js';
import { lengthOf, Moved, type Pieces } from '../../../rpc/decode/pieces.js';

const MAX_BYTES = 2 ** 26;
const PART = 65_536;
const noLimits = (): TextLimits => new Map();
const body = (fill: string): Buffer => Buffer.from(JSON.stringify({ text: fill.repeat(4_000_000) }));

function arrive(bytes: Buffer, large: LargeMessages): Arriving {
  const arriving = new Arriving(large);
  for (let at = 0; at < bytes.length; at += PART) arriving.push(Uint8Array.from(bytes.subarray(at, at + PART)));
  return arriving;
}

const hasMoved = (pieces: Pieces): boolean => pieces[0] instanceof Moved;

test('messages that arrive at the same time, some given up, are each what they were', async () => {
  const large = new LargeMessages(MAX_BYTES, noLimits);
  const [a, b, c] = [body('a'), body('b'), body('c')];
  const [first, given, third] = [arrive(a, large), arrive(b, large), arrive(c, large)];
  given.drop();
  const pieces = first.take();
  assert.deepEqual([hasMoved(pieces), lengthOf(pieces)], [true, a.length]);
  const values = await Promise.all([large.value(third.take(), ''), large.value(pieces, ''), large.value([Uint8Array.from(b)], '')]);
  assert.deepEqual(
    values.map(({ value }) => value),
    [c, a, b].map((bytes) => JSON.parse(bytes.toString())),
  );
});

test('what was given up, or asked for already, cannot be read any more', async () => {
  const large = new LargeMessages(MAX_BYTES, noLimits);
  const pieces = arrive(body('d'), large).take();
  large.drop(pieces);
  assert.equal((await large.value(pieces, '')).failure?.kind, 'internal');
  const others = arrive(body('e'), large).take();
  assert.ok((await large.value(others, '')).value !== undefined);
  large.drop(others); // late, and nothing to it
  assert.equal((await large.value(others, '')).failure?.kind, 'internal');
});

test('a message that is not large stays where it is', () => {
  const large = new LargeMessages(MAX_BYTES, noLimits);
  assert.ok(!hasMoved(arrive(Buffer.alloc(aheadBytes), large).take()));
});
