/**
 * Walks the headers of a msgpack message before it is unpacked and refuses what JSON could not say or what would be too costly: depth,
 * number of values, extension types, binary values, map keys that are not strings, integers beyond 2^53, strings that are not UTF-8,
 * lengths beyond the end, bytes after the end. Nothing is allocated per value. The format is that of the msgpack specification.
 */
import { isUtf8 } from 'node:buffer';
import { messageLimits, type StructureLimits } from './json-scan.js';

/** `broken`: not msgpack. `type`: msgpack, but nothing that a JSON-RPC message can hold. */
export type MsgpackFault = 'broken' | 'type' | 'deep' | 'large' | null;

class Walk {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;
  #values = 0;
  #keys = 0;
  readonly #limits: StructureLimits;

  constructor(bytes: Uint8Array, limits: StructureLimits) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#limits = limits;
  }

  run(): MsgpackFault {
    const fault = this.#value(1);
    if (fault !== null) return fault;
    return this.#at === this.#bytes.length ? null : 'broken';
  }

  /** Recursion is bounded by maxDepth. */
  #value(depth: number): MsgpackFault {
    if (++this.#values > this.#limits.maxValues) return 'large';
    const tag = this.#bytes[this.#at++];
    if (tag === undefined) return 'broken';
    if (tag < 0x80 || tag >= 0xe0) return null; // small integers
    if (tag < 0x90) return this.#map(tag & 0x0f, depth);
    if (tag < 0xa0) return this.#array(tag & 0x0f, depth);
    if (tag < 0xc0) return this.#text(tag & 0x1f);
    switch (tag) {
      case 0xc0: // nil
      case 0xc2: // false
      case 0xc3: // true
        return null;
      case 0xca: // float 32
        return this.#float(4);
      case 0xcb: // float 64
        return this.#float(8);
      case 0xcc: // uint 8
      case 0xd0: // int 8
        return this.#skip(1);
      case 0xcd:
      case 0xd1:
        return this.#skip(2);
      case 0xce:
      case 0xd2:
        return this.#skip(4);
      case 0xcf:
        return this.#wide(false);
      case 0xd3:
        return this.#wide(true);
      case 0xd9:
        return this.#sized(1, (n) => this.#text(n));
      case 0xda:
        return this.#sized(2, (n) => this.#text(n));
      case 0xdb:
        return this.#sized(4, (n) => this.#text(n));
      case 0xdc:
        return this.#sized(2, (n) => this.#array(n, depth));
      case 0xdd:
        return this.#sized(4, (n) => this.#array(n, depth));
      case 0xde:
        return this.#sized(2, (n) => this.#map(n, depth));
      case 0xdf:
        return this.#sized(4, (n) => this.#map(n, depth));
      case 0xc1: // never used
        return 'broken';
      default: // binary and extension types
        return 'type';
    }
  }

  #skip(n: number): MsgpackFault {
    this.#at += n;
    return this.#at <= this.#bytes.length ? null : 'broken';
  }

  /** A length of `width` bytes, then what it measures. */
  #sized(width: 1 | 2 | 4, then: (n: number) => MsgpackFault): MsgpackFault {
    const at = this.#at;
    if (this.#skip(width) !== null) return 'broken';
    return then(width === 1 ? this.#view.getUint8(at) : width === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at));
  }

  #float(width: 4 | 8): MsgpackFault {
    const at = this.#at;
    if (this.#skip(width) !== null) return 'broken';
    return Number.isFinite(width === 4 ? this.#view.getFloat32(at) : this.#view.getFloat64(at)) ? null : 'type';
  }

  #wide(signed: boolean): MsgpackFault {
    const at = this.#at;
    if (this.#skip(8) !== null) return 'broken';
    const value = signed ? this.#view.getBigInt64(at) : this.#view.getBigUint64(at);
    return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? null : 'type';
  }

  #text(n: number): MsgpackFault {
    const at = this.#at;
    if (this.#skip(n) !== null) return 'broken';
    return isUtf8(this.#bytes.subarray(at, at + n)) ? null : 'broken';
  }

  #array(n: number, depth: number): MsgpackFault {
    if (depth > this.#limits.maxDepth) return 'deep';
    if (n > this.#bytes.length - this.#at) return 'broken'; // an element takes a byte at least
    for (let i = 0; i < n; i++) {
      const fault = this.#value(depth + 1);
      if (fault !== null) return fault;
    }
    return null;
  }

  #map(n: number, depth: number): MsgpackFault {
    if (depth > this.#limits.maxDepth) return 'deep';
    if (2 * n > this.#bytes.length - this.#at) return 'broken';
    this.#keys += n;
    if (this.#keys > this.#limits.maxKeys) return 'large';
    for (let i = 0; i < n; i++) {
      const tag = this.#bytes[this.#at];
      if (tag === undefined) return 'broken';
      if (!((tag >= 0xa0 && tag < 0xc0) || (tag >= 0xd9 && tag <= 0xdb))) return 'type';
      const fault = this.#value(depth + 1) ?? this.#value(depth + 1);
      if (fault !== null) return fault;
    }
    return null;
  }
}

/** The first fault of `bytes`, or null when they may be unpacked. */
export function scanMsgpack(bytes: Uint8Array, limits: StructureLimits = messageLimits): MsgpackFault {
  return new Walk(bytes, limits).run();
}
