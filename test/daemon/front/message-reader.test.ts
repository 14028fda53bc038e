/** Messages put together from the bytes of a socket, as these may be cut anywhere; all else goes to ws as it came. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Incoming, MessageReader } from '../../../daemon/front/message-reader.js';
import { joined } from '../../../rpc/decode/pieces.js';
import { KeptAhead } from './kept-ahead.js';

const limits = { maxBytes: 10_000_000, maxFragments: 100, maxReads: 1_000_000 };

interface FrameOptions {
  readonly final?: boolean;
  readonly mask?: readonly number[] | null;
  /** Bytes of the length, where more than the fewest. */
  readonly wide?: boolean;
}

/** A frame as a client sends it (RFC 6455, 5.2). */
function frame(
  opcode: number,
  payload: Uint8Array,
  { final = true, mask = [0x12, 0xfe, 0, 0x77], wide = false }: FrameOptions = {},
): Buffer {
  const { length } = payload;
  const marked = mask === null ? 0 : 0x80;
  const head: number[] = [(final ? 0x80 : 0) | opcode];
  if (length >= 65_536 || wide)
    head.push(marked | 127, 0, 0, 0, 0, length >>> 24, (length >>> 16) & 255, (length >>> 8) & 255, length & 255);
  else if (length >= 126) head.push(marked | 126, length >> 8, length & 255);
  else head.push(marked | length);
  const body = mask === null ? payload : payload.map((byte, i) => byte ^ (mask[i % 4] ?? 0));
  return Buffer.concat([Buffer.from([...head, ...(mask ?? [])]), body]);
}

/** All that a reader makes of these bytes, given in chunks of these sizes by turns. */
function readAll(bytes: Buffer, sizes: readonly number[], reader = new MessageReader(limits)): Incoming[] {
  const found: Incoming[] = [];
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? bytes.length;
    reader.add(Buffer.from(bytes.subarray(at, at + size)));
    at += size;
    for (let next = reader.read(); next !== null; next = reader.read()) found.push(next);
  }
  return found;
}

const wholeOf = (one: Incoming): string => (one.kind === 'message' ? Buffer.from(joined(one.pieces)).toString('latin1') : one.kind);

test('every message comes whole and in order, however it is framed, masked and cut, with pings between', () => {
  const part = fc.tuple(fc.uint8Array({ maxLength: 300 }), fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)), fc.boolean());
  const message = fc.record({ text: fc.boolean(), parts: fc.array(part, { minLength: 1, maxLength: 5 }) });
  fc.assert(
    fc.property(fc.array(message, { maxLength: 6 }), fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 }), (messages, sizes) => {
      const sent: Buffer[] = [];
      const pings: Buffer[] = [];
      for (const { text, parts } of messages) {
        for (const [i, [payload, mask, pinged]] of parts.entries()) {
          sent.push(frame(i > 0 ? 0 : text ? 1 : 2, payload, { final: i === parts.length - 1, mask, wide: pinged }));
          if (!pinged) continue;
          pings.push(frame(9, payload.subarray(0, 125)));
          sent.push(pings.at(-1) as Buffer);
        }
      }
      const found = readAll(Buffer.concat(sent), sizes);
      const got = found.filter((one) => one.kind === 'message');
      assert.deepEqual(
        got.map((one) => [one.text, one.bytes, wholeOf(one)]),
        messages.map(({ text, parts }) => {
          const whole = Buffer.concat(parts.map(([payload]) => payload));
          return [text, whole.length, whole.toString('latin1')];
        }),
      );
      const others = found.flatMap((one) => (one.kind === 'other' ? [one.bytes] : []));
      assert.deepEqual(Buffer.concat(others), Buffer.concat(pings));
    }),
  );
});

test('a message of megabytes comes in pieces that share no memory with anything else', () => {
  const payload = Buffer.from(Array.from({ length: 9_000_001 }, (_, i) => (i * 7 + (i >> 9)) & 255));
  const [message, ...more] = readAll(frame(2, payload), [65_536, 1, 1448]);
  assert.ok(message?.kind === 'message' && message.pieces.length > 1);
  assert.deepEqual([Buffer.from(joined(message.pieces)).equals(payload), message.bytes, more.length], [true, payload.length, 0]);
  for (const piece of message.pieces) {
    assert.ok(piece instanceof Uint8Array);
    assert.ok(piece.buffer.byteLength <= 4 * 2 ** 20 && piece.byteLength <= piece.buffer.byteLength);
  }
});

test('the memory of a large message can move to another thread, and what came behind it in the same read stays', () => {
  const some = fc.array(fc.integer({ min: 1, max: 120_000 }), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 400_000 }), { maxLength: 5 }), some, (lengths, sizes) => {
      const payloads = lengths.map((length, i) => new Uint8Array(length).fill(i + 1));
      const bytes = Buffer.concat(payloads.map((payload) => frame(2, payload)));
      const ahead = new KeptAhead();
      const reader = new MessageReader(limits, ahead);
      const got: Uint8Array[] = [];
      for (let at = 0, i = 0; at < bytes.length; i++) {
        const size = sizes[i % sizes.length] ?? 1;
        const chunk = Buffer.allocUnsafeSlow(Math.min(size, bytes.length - at)); // as a socket gives it
        bytes.copy(chunk, 0, at);
        reader.add(chunk);
        at += chunk.length;
        for (let next = reader.read(); next !== null; next = reader.read()) {
          if (next.kind === 'message') got.push(ahead.whole(next.pieces));
        }
      }
      assert.ok(got.length === payloads.length && got.every((one, i) => Buffer.compare(one, payloads[i] ?? one) === 0));
    }),
    { numRuns: 60 },
  );
});

test('nothing is set aside for a length that was only announced', () => {
  const reader = new MessageReader({ ...limits, maxBytes: 2 ** 40 });
  const before = process.memoryUsage().arrayBuffers;
  reader.add(Buffer.from([0x82, 0xff, 0, 0, 0, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5]));
  assert.equal(reader.read(), null);
  assert.ok(reader.partial && process.memoryUsage().arrayBuffers - before < 16 * 2 ** 20);
});

test('what ws refuses by itself goes to ws with all that follows', () => {
  const a = Buffer.from('a');
  const refused = [
    ['an unmasked frame', frame(1, a, { mask: null })],
    ['a reserved bit', Buffer.from([0xc1, 0x80, 0, 0, 0, 0])],
    ['an unknown opcode', frame(3, a)],
    ['a large control frame', frame(9, Buffer.alloc(126))],
    ['a continuation of nothing', frame(0, a)],
    ['a message over the limit', frame(1, Buffer.alloc(limits.maxBytes + 1)).subarray(0, 1000)],
    ['a length beyond 2^53', Buffer.from([0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4])],
  ] as const;
  for (const [what, bytes] of refused) {
    const after = frame(1, a);
    const reader = new MessageReader(limits);
    const found = readAll(Buffer.concat([bytes, after]), [bytes.length + after.length], reader);
    const handedOn = Buffer.concat(found.map((one) => (one.kind === 'other' ? one.bytes : Buffer.alloc(0))));
    assert.deepEqual([found.every(({ kind }) => kind === 'other'), handedOn], [true, Buffer.concat([bytes, after])], what);
    assert.equal(reader.partial, false, what);
  }
});

test('a message that breaks the rules after it has begun ends with the code of its fault', () => {
  const x = Buffer.from('x');
  const begin = frame(1, x, { final: false });
  const broken = [
    [1002, [begin, frame(1, x)]],
    [1009, [begin, frame(0, Buffer.alloc(limits.maxBytes))]],
    [1008, [begin, ...Array.from({ length: limits.maxFragments }, () => frame(0, x, { final: false }))]],
  ] as const;
  for (const [code, frames] of broken) {
    const [found] = readAll(Buffer.concat([...frames]), [65_536]);
    assert.ok(found?.kind === 'broken' && found.code === code && found.reason !== '', JSON.stringify(found));
  }
});

test('a message that comes byte by byte without end costs its connection, one that comes in small packets does not', () => {
  const drip = readAll(frame(1, Buffer.alloc(20_000)), [1], new MessageReader({ ...limits, maxReads: 1000 }));
  assert.deepEqual([drip.length > 0, drip[0]?.kind === 'broken' && drip[0].code], [true, 1008]);
  const packets = readAll(frame(1, Buffer.alloc(3_000_000)), [1448], new MessageReader({ ...limits, maxReads: 10 }));
  assert.deepEqual(
    packets.map(({ kind }) => kind),
    ['message'],
  );
});

test('what went ahead of a message that breaks, or whose client leaves, is dropped there', () => {
  const half = frame(2, Buffer.alloc(3_000_000), { final: false });
  const broken = new KeptAhead();
  const found = readAll(Buffer.concat([half, frame(1, Buffer.of(1))]), [65_536], new MessageReader(limits, broken));
  assert.deepEqual([found.map(({ kind }) => kind).slice(0, 1), broken.moved > 0, broken.held], [['broken'], true, 0]);
  const left = new KeptAhead();
  const reader = new MessageReader(limits, left);
  readAll(half, [65_536], reader);
  assert.equal(left.held, 1);
  reader.drop();
  assert.equal(left.held, 0);
});
