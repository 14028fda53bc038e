/**
 * Turns the value of an answer into pieces of text or msgpack, one at a time, so that a large answer is neither in memory as a whole nor
 * holds the event loop while it is made. The pieces together are, byte for byte, what encoding the value at once gives. Knows nothing of
 * sockets: the Wire of a connection, or an HTTP reply, takes a slice whenever it has room for one.
 */
import { Buffer } from 'node:buffer';
import { packMessage } from '../actors/messages/codec.js';
import type { Encoding } from './decode/decode.js';
import { PackedList } from './packed-list.js';

/** The rest of one message. */
export interface Slices {
  /** The next piece, null when there are no more. Takes a millisecond or two. Text never ends between the halves of a character. */
  next(): string | Uint8Array | null;
  /** Frees the value; there are no more pieces then. To be called exactly once by whoever takes the pieces, also after the last. */
  close(): void;
}

/** Characters or bytes of a slice, at least; an answer of less is encoded at once. About a millisecond of work. */
const SLICE = 2 ** 16;
/** A list is encoded in groups of elements of about this many characters. */
const GROUP_CHARS = 2 ** 12;
/** What a value costs besides its text: quotes, commas, digits of a number. */
const VALUE_CHARS = 8;

/** True when `value` had better be written in slices. */
export function isLarge(value: unknown): boolean {
  return roomAfter(value, SLICE) < 0;
}

/** What is left of `room` characters; stops counting below 0. */
function roomAfter(value: unknown, room: number): number {
  if (typeof value === 'string') return room - value.length - VALUE_CHARS;
  if (typeof value !== 'object' || value === null) return room - VALUE_CHARS;
  if (value instanceof PackedList) return room - value.chars;
  let left = room - VALUE_CHARS;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && left >= 0; i++) left = roomAfter(value[i], left);
    return left;
  }
  for (const key in value) {
    left = roomAfter((value as Record<string, unknown>)[key], left - key.length);
    if (left < 0) break;
  }
  return left;
}

/** `onClose` runs when the slices are closed. */
export function slicesOf(value: unknown, encoding: Encoding, onClose: () => void = () => {}): Slices {
  let pieces: Iterator<string | Uint8Array> | null =
    encoding === 'json' ? gathered(jsonPieces(value)) : gatheredBytes(msgpackPieces(value));
  return {
    next() {
      const piece = pieces?.next();
      return piece === undefined || piece.done === true ? null : piece.value;
    },
    close() {
      if (pieces === null) return;
      pieces = null;
      onClose();
    },
  };
}

function* gathered(pieces: Iterable<string>): Generator<string> {
  let slice = '';
  for (const piece of pieces) {
    slice += piece;
    if (slice.length < SLICE) continue;
    yield slice;
    slice = '';
  }
  if (slice !== '') yield slice;
}

function* gatheredBytes(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
  let slice: Uint8Array[] = [];
  let length = 0;
  for (const piece of pieces) {
    slice.push(piece);
    length += piece.length;
    if (length < SLICE) continue;
    yield Buffer.concat(slice, length);
    slice = [];
    length = 0;
  }
  if (length > 0) yield Buffer.concat(slice, length);
}

function* jsonPieces(value: unknown): Generator<string> {
  if (!isLarge(value)) yield JSON.stringify(value) ?? 'null';
  else if (typeof value === 'string') {
    yield '"';
    for (const part of partsOf(value)) yield JSON.stringify(part).slice(1, -1);
    yield '"';
  } else if (value instanceof PackedList) {
    let opening = '[';
    for (const group of groupsOf(value)) {
      yield opening + JSON.stringify(group).slice(1, -1);
      opening = ',';
    }
    yield ']';
  } else if (Array.isArray(value)) {
    let opening = '[';
    for (const item of value) {
      yield opening;
      yield* jsonPieces(item);
      opening = ',';
    }
    yield ']';
  } else {
    let opening = '{';
    for (const [key, member] of members(value)) {
      yield `${opening}${JSON.stringify(key)}:`;
      yield* jsonPieces(member);
      opening = ',';
    }
    yield '}';
  }
}

function* msgpackPieces(value: unknown): Generator<Uint8Array> {
  if (!isLarge(value)) yield packMessage(value ?? null);
  else if (typeof value === 'string') {
    yield stringHeader(Buffer.byteLength(value, 'utf8'));
    for (const part of partsOf(value)) yield Buffer.from(part, 'utf8');
  } else if (value instanceof PackedList) {
    yield arrayHeader(value.length);
    for (const group of groupsOf(value)) yield packMessage(group).subarray(arrayHeader(group.length).length);
  } else if (Array.isArray(value)) {
    yield arrayHeader(value.length);
    for (const item of value) yield* msgpackPieces(item);
  } else {
    const all = members(value);
    yield mapHeader(all.length);
    for (const [key, member] of all) {
      yield packMessage(key);
      yield* msgpackPieces(member);
    }
  }
}

/** As JSON.stringify sees them. */
function members(value: unknown): [string, unknown][] {
  return Object.entries(value as object).filter(([, member]) => member !== undefined); // only objects that are no arrays come here
}

/** The elements of a list as arrays of a few. */
function* groupsOf(list: PackedList<unknown>): Generator<unknown[]> {
  const size = Math.max(1, Math.floor((GROUP_CHARS * list.length) / Math.max(1, list.chars)));
  let group: unknown[] = [];
  for (const item of list) {
    if (group.push(item) < size) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}

/** Cuts a long text, but not between the two halves of a character beyond U+FFFF. */
function* partsOf(text: string): Generator<string> {
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + GROUP_CHARS);
    const last = text.charCodeAt(to - 1);
    if (to < text.length && last >= 0xd800 && last < 0xdc00) to++;
    yield text.slice(from, to);
    from = to;
  }
}

/** First bytes of what msgpack calls str 16, str 32, fixarray, array 16, array 32, fixmap and map 16. */
const MSGPACK = { string16: 0xda, string32: 0xdb, shortArray: 0x90, array16: 0xdc, array32: 0xdd, shortMap: 0x80, map16: 0xde } as const;
const SHORT = 16;

function arrayHeader(length: number): Uint8Array {
  return length < SHORT ? Uint8Array.of(MSGPACK.shortArray | length) : lengthHeader(MSGPACK.array16, MSGPACK.array32, length);
}

/** An object of an answer has far fewer than 65,536 members. */
function mapHeader(length: number): Uint8Array {
  return length < SHORT ? Uint8Array.of(MSGPACK.shortMap | length) : lengthHeader(MSGPACK.map16, MSGPACK.map16, length);
}

/** Of the long strings that are cut. */
function stringHeader(bytes: number): Uint8Array {
  return lengthHeader(MSGPACK.string16, MSGPACK.string32, bytes);
}

function lengthHeader(type16: number, type32: number, length: number): Uint8Array {
  if (length <= 0xffff) return Uint8Array.of(type16, length >> 8, length & 0xff);
  const header = Buffer.allocUnsafe(5);
  header[0] = type32;
  header.writeUInt32BE(length, 1);
  return header;
}
