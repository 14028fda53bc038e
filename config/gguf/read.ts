/**
 * Reads the head of a GGUF file: metadata, and where tensors lie. Version 2 and 3. Of a split file the first part has the metadata, and any
 * part any tensor. The weights are not touched: native/core/checkpoint reads them, and checks more of the tensors than this does.
 *
 * The file comes from a stranger: counts are checked against the bytes that are left before anything is made by them, and the whole head
 * is bounded. Used at start-up by config.ts, and by the tokenizer's gguf-tokenizer.ts.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { ConfigError } from '../error.js';

/** Metadata by key. 64-bit numbers become ordinary ones. Lists of strings that nobody asked for are empty. */
export type GgufMetadata = ReadonlyMap<string, GgufValue>;
export type GgufValue = string | number | boolean | readonly GgufValue[];

export interface GgufTensor {
  /** Row length last, as elsewhere; in the file it is first. */
  readonly shape: readonly number[];
  /** 0 = F32; see native/core/checkpoint/block_types.cpp. */
  readonly type: number;
  /** The file that holds it. */
  readonly path: string;
  /** From the start of that file. */
  readonly offset: number;
}

export interface GgufHead {
  readonly path: string;
  readonly metadata: GgufMetadata;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
}

const maxHeadBytes = 512 * 2 ** 20;
const maxTensors = 200_000;
const maxPairs = 100_000;
const maxKeyBytes = 65_535;
const maxNesting = 4;
const chunkBytes = 1 << 20;
/** Bytes of a value of each type; 0 for strings and lists. */
const valueBytes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
const stringType = 8;
const listType = 9;

class Cursor {
  readonly #fd: number;
  readonly #path: string;
  readonly #size: number;
  #chunk = Buffer.alloc(0);
  #chunkAt = 0;
  at = 0;

  constructor(fd: number, path: string, size: number) {
    this.#fd = fd;
    this.#path = path;
    this.#size = size;
  }

  fail(what: string): never {
    throw new ConfigError(`${this.#path} is not a valid GGUF file: ${what}; download the model again`, 65);
  }

  get left(): number {
    return this.#size - this.at;
  }

  /** The next bytes, valid until the next call. */
  take(bytes: number): Buffer {
    if (!(bytes <= this.left)) this.fail(`at byte ${this.at} it ends early`);
    if (this.at + bytes > maxHeadBytes) this.fail('its metadata is too large');
    if (this.at < this.#chunkAt || this.at + bytes > this.#chunkAt + this.#chunk.length) {
      const chunk = Buffer.allocUnsafe(Math.min(Math.max(bytes, chunkBytes), this.left));
      let got = 0;
      while (got < chunk.length) {
        const more = readSync(this.#fd, chunk, got, chunk.length - got, this.at + got);
        if (more === 0) this.fail(`at byte ${this.at} it ends early`);
        got += more;
      }
      this.#chunk = chunk;
      this.#chunkAt = this.at;
    }
    const from = this.at - this.#chunkAt;
    this.at += bytes;
    return this.#chunk.subarray(from, from + bytes);
  }

  u32(): number {
    return this.take(4).readUInt32LE();
  }

  /** A count or an offset: more than can be counted is more than the file has. */
  u64(): number {
    const value = this.take(8).readBigUInt64LE();
    return value > BigInt(Number.MAX_SAFE_INTEGER) ? Number.POSITIVE_INFINITY : Number(value);
  }

  text(most = Number.MAX_SAFE_INTEGER): string {
    const bytes = this.u64();
    if (bytes > most) this.fail(`a name has ${bytes} bytes`);
    return this.take(bytes).toString('utf8');
  }

  value(type: number, wanted: boolean, depth = 0): GgufValue {
    if (type === stringType) return wanted || depth === 0 ? this.text() : this.#skip(this.u64());
    if (type === listType && depth < maxNesting) return this.#list(wanted, depth);
    const bytes = valueBytes[type] ?? 0;
    if (bytes === 0) this.fail(`a value has the unknown type ${type}`);
    return fixed(this.take(bytes), type);
  }

  #skip(bytes: number): string {
    if (!(bytes <= this.left)) this.fail(`at byte ${this.at} it ends early`);
    this.at += bytes;
    return '';
  }

  #list(wanted: boolean, depth: number): readonly GgufValue[] {
    const of = this.u32();
    const count = this.u64();
    const each = valueBytes[of] ?? 0;
    if (!(count <= this.left / (each || 8))) this.fail(`a list of ${count} entries has no room`);
    const entries: GgufValue[] = [];
    if (!wanted && each > 0) this.#skip(count * each);
    else
      for (let i = 0; i < count; i++) {
        const entry = this.value(of, wanted, depth + 1);
        if (wanted) entries.push(entry);
      }
    return entries;
  }
}

function fixed(bytes: Buffer, type: number): number | boolean {
  switch (type) {
    case 0:
      return bytes.readUInt8();
    case 1:
      return bytes.readInt8();
    case 2:
      return bytes.readUInt16LE();
    case 3:
      return bytes.readInt16LE();
    case 4:
      return bytes.readUInt32LE();
    case 5:
      return bytes.readInt32LE();
    case 6:
      return bytes.readFloatLE();
    case 7:
      return bytes.readUInt8() !== 0;
    case 10:
      return Number(bytes.readBigUInt64LE());
    case 11:
      return Number(bytes.readBigInt64LE());
    default:
      return bytes.readDoubleLE();
  }
}

/**
 * @param wanted which lists are kept; all other values are.
 * @throws ConfigError 65 for a file that is no GGUF file, 66 for one that cannot be read.
 */
export function readGguf(path: string, wanted: (key: string) => boolean): GgufHead {
  let fd: number;
  try {
    // Without O_NONBLOCK a FIFO would be waited for until somebody writes to it.
    fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw new ConfigError(`${path} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`, 66);
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new ConfigError(`${path} is not a file`, 66);
    return readHead(new Cursor(fd, path, stat.size), path, wanted);
  } finally {
    closeSync(fd);
  }
}

/** The metadata of the first part of a split file, with the tensors of all of them. @throws ConfigError as `readGguf` */
export function readGgufParts(parts: readonly string[], wanted: (key: string) => boolean): GgufHead {
  const [first = '', ...others] = parts;
  const head = readGguf(first, wanted);
  const tensors = others.flatMap((path) => [...readGguf(path, () => false).tensors]);
  return { ...head, tensors: new Map([...head.tensors, ...tensors]) };
}

function readHead(at: Cursor, path: string, wanted: (key: string) => boolean): GgufHead {
  if (at.take(4).toString('latin1') !== 'GGUF') at.fail('it does not begin with GGUF');
  const version = at.u32();
  if ((version & 0xffff) === 0) at.fail('its numbers are big-endian');
  if (version !== 2 && version !== 3) at.fail(`it has version ${version}, and 2 and 3 are known`);
  const numTensors = at.u64();
  const numPairs = at.u64();
  if (numTensors > Math.min(maxTensors, at.left / 32) || numPairs > Math.min(maxPairs, at.left / 13))
    at.fail(`it claims ${numTensors} tensors and ${numPairs} keys, more than it has room for`);
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < numPairs; i++) {
    const key = at.text(maxKeyBytes);
    if (metadata.has(key)) at.fail(`the key ${JSON.stringify(key.slice(0, 80))} is there twice`);
    metadata.set(key, at.value(at.u32(), wanted(key) || !key.startsWith('tokenizer.ggml.')));
  }
  const placed = new Map<string, GgufTensor>();
  for (let i = 0; i < numTensors; i++) {
    const name = at.text(63);
    const dims = at.u32();
    if (dims < 1 || dims > 4) at.fail(`a tensor has ${dims} dimensions`);
    const shape: number[] = [];
    for (let d = 0; d < dims; d++) shape.unshift(at.u64());
    if (placed.has(name)) at.fail(`the tensor ${JSON.stringify(name)} is there twice`);
    placed.set(name, { shape, type: at.u32(), path, offset: at.u64() });
  }
  const alignment = metadata.get('general.alignment') ?? 32;
  if (typeof alignment !== 'number' || !Number.isInteger(Math.log2(alignment)) || alignment > 2 ** 20)
    at.fail('its alignment is no power of 2');
  const dataStart = Math.ceil(at.at / alignment) * alignment;
  const tensors = new Map([...placed].map(([name, tensor]) => [name, { ...tensor, offset: dataStart + tensor.offset }]));
  return { path, metadata, tensors };
}

/** The numbers of a small tensor of type F32, or null when it is not there. @throws ConfigError 65 */
export function readSmallTensor(head: GgufHead, name: string): number[] | null {
  const tensor = head.tensors.get(name);
  if (tensor === undefined) return null;
  const [count = 0] = tensor.shape;
  if (tensor.type !== 0 || tensor.shape.length !== 1 || !(count <= 4096) || !Number.isSafeInteger(tensor.offset))
    throw new ConfigError(`${head.path}: the tensor ${name} is not what it should be; download the model again`, 65);
  const bytes = Buffer.alloc(4 * count);
  const fd = openSync(tensor.path, 'r');
  try {
    if (readSync(fd, bytes, 0, bytes.length, tensor.offset) !== bytes.length)
      throw new ConfigError(`${tensor.path} ends early; download the model again`, 65);
  } finally {
    closeSync(fd);
  }
  return Array.from({ length: count }, (_, i) => bytes.readFloatLE(4 * i));
}

/** Number of a key of the metadata; `fallback` where it is not there. @throws ConfigError 65 */
export function ggufNumber(head: GgufHead, key: string, fallback?: number): number {
  const value = head.metadata.get(key) ?? fallback;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  throw new ConfigError(`${head.path}: ${key} must be a number; take another version of the model`, 65);
}

export function ggufText(head: GgufHead, key: string): string | null {
  const value = head.metadata.get(key);
  return typeof value === 'string' ? value : null;
}
