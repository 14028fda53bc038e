/**
 * Turns batches of messages into bytes and back, msgpack with records. Used by every mailbox, in every thread.
 *
 * Traps of the packer that this file keeps from everyone else:
 *  - Two packs share one 8 KB ArrayBuffer. Posting `packed` would copy (or, when transferred, take away) that whole buffer, so bytes
 *    that are posted must be copied before.
 *  - Binary fields would come out as unaligned views that keep the whole batch alive; `decode` copies them, so an int32 body can be
 *    viewed in place.
 * Each message is self-contained (nothing is learned from one for the next): a link can be replaced at any time. Records of the shapes in
 * shapes.ts, which both ends know, are written without the names of their members; others bring them along.
 */
import { Buffer } from 'node:buffer';
import { Packr, Unpackr } from 'msgpackr';
import { messageShapes } from './shapes.js';

/** Lists of its own for each packer and unpacker, which keep notes in them. As many as are known may be shared, so that none is added. */
const shared = () => ({
  useRecords: true,
  structures: messageShapes.map((names) => [...names]),
  maxSharedStructures: messageShapes.length,
});

/** One per thread and purpose; not re-entrant, which no caller can notice because both calls are synchronous. */
export class Codec {
  readonly #packr = new Packr(shared());
  readonly #unpackr = new Unpackr({ ...shared(), copyBuffers: true, mapsAsObjects: true });

  /** A view of memory that holds other things too: to be copied, not posted or kept. */
  encode(batch: readonly unknown[]): Uint8Array {
    return this.#packr.pack(batch);
  }

  /**
   * `T` is the sender's message type: both ends of a link are built from one declaration. Keeps nothing of `bytes`.
   * @param length bytes of the batch, at the beginning of `bytes`.
   * @throws on bytes that `encode` did not make.
   */
  decode<T>(bytes: Uint8Array, length = bytes.byteLength): readonly T[] {
    const batch: unknown = this.#unpackr.unpack(bytes, length);
    if (!Array.isArray(batch)) throw new Error('codec: a message batch is not an array');
    return batch as T[]; // proof: see T above
  }
}

/** The int32 values of a decoded binary field. A view when the bytes are aligned (those of `decode` are), else a copy. */
export function int32Of(bytes: Uint8Array): Int32Array {
  if (bytes.byteLength % 4 !== 0) throw new RangeError(`int32 body of ${bytes.byteLength} bytes`);
  if (bytes.byteOffset % 4 === 0) return new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  return new Int32Array(bytes.slice().buffer);
}

/** The bytes of int32 values, as a view. */
export function bytesOf(words: Int32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

/** For messages of clients: plain maps, no records and no extension types, so that any msgpack library can read and write them. */
const plainPackr = new Packr({ useRecords: false, variableMapSize: true, mapsAsObjects: true });
/** 64-bit integers become numbers (the caller refuses those beyond 2^53 before); maps become objects, never Map. */
const plainUnpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'number' });

/** A JSON-like value as msgpack. It may not hold `undefined`, which msgpack lacks. Allocates the result, which owns its ArrayBuffer. */
export function packMessage(value: unknown): Uint8Array<ArrayBuffer> {
  return new Uint8Array(plainPackr.pack(value));
}

/** The same in memory in which other messages lie: to be copied, not posted or kept. */
export function packView(value: unknown): Uint8Array {
  return plainPackr.pack(value);
}

/** Members called `__proto__`, which `plainUnpackr` would rename, stay what they are in a Map. */
const mapUnpackr = new Unpackr({ useRecords: false, mapsAsObjects: false, int64AsType: 'number' });

/**
 * The value of msgpack bytes whose structure was checked before (depth, sizes, no extension types). Members named `__proto__` stay, as in JSON.parse.
 * @throws on bytes that are not msgpack.
 */
export function unpackMessage(bytes: Uint8Array): unknown {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return view.includes('__proto__') ? objectOf(mapUnpackr.unpack(bytes)) : plainUnpackr.unpack(bytes);
}

/** Maps as objects, in which fromEntries makes even `__proto__` an own member. Depth is bounded by the check before. */
function objectOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(objectOf);
  if (!(value instanceof Map)) return value;
  return Object.fromEntries([...(value as Map<string, unknown>)].map(([key, member]) => [key, objectOf(member)])); // proof: keys are checked to be strings
}
