/** Reads and writes small safetensors files for tests; the writer puts down whatever header it is given, also a wrong one. */
import { readFileSync, writeFileSync } from 'node:fs';

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

export interface TestTensor {
  readonly shape: readonly number[];
  readonly data: Float32Array | Int32Array;
}

/** The F32 and I32 tensors of a file. */
export function readSafetensors(path: string): Map<string, TestTensor> {
  const file = readFileSync(path);
  const headerBytes = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerBytes)) as Record<string, HeaderEntry>;
  const out = new Map<string, TestTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const [begin, end] = entry.data_offsets;
    const bytes = new Uint8Array(file.subarray(8 + headerBytes + begin, 8 + headerBytes + end)).buffer;
    out.set(name, { shape: entry.shape, data: entry.dtype === 'I32' ? new Int32Array(bytes) : new Float32Array(bytes) });
  }
  return out;
}

/** The numbers of a BF16 tensor, which readSafetensors gives as it lies in the file. */
export function widenedBf16(data: Float32Array | Int32Array): Float32Array {
  const halves = new Uint16Array(data.buffer, data.byteOffset, data.byteLength / 2);
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < halves.length; i++) bits[i] = (halves[i] ?? 0) << 16; // a twentieth of the time of Uint32Array.from
  return new Float32Array(bits.buffer);
}

/** A tensor as it lies in a file. */
export interface RawTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/** All tensors of a file, of any type. */
export function readRawTensors(path: string): Map<string, RawTensor> {
  const file = readFileSync(path);
  const start = 8 + Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, start)) as Record<string, HeaderEntry>;
  const entries = Object.entries(header).filter(([name]) => name !== '__metadata__');
  return new Map(
    entries.map(([name, { dtype, shape, data_offsets: at }]) => [
      name,
      { dtype, shape, data: new Uint8Array(file.subarray(start + at[0], start + at[1])) },
    ]),
  );
}

export function writeRawTensors(path: string, tensors: ReadonlyMap<string, RawTensor>): void {
  const header: Record<string, HeaderEntry> = {};
  let at = 0;
  for (const [name, { dtype, shape, data }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + data.length] };
    at += data.length;
  }
  const data = Buffer.concat([...tensors.values()].map((tensor) => tensor.data));
  writeFileSync(path, safetensorsBytes(JSON.stringify(header), data));
}

/** A file of `header` (text as it is) and `data`; `headerBytes` overrides the length written before it. */
export function safetensorsBytes(header: string, data: Uint8Array, headerBytes?: bigint): Uint8Array {
  const text = Buffer.from(header, 'utf8');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes ?? BigInt(text.length));
  return Buffer.concat([length, text, data]);
}

/** Writes a well-formed file of float32 tensors. */
export function writeSafetensors(path: string, tensors: ReadonlyMap<string, { shape: readonly number[]; data: Float32Array }>): void {
  const header: Record<string, HeaderEntry> = {};
  const parts: Buffer[] = [];
  let at = 0;
  for (const [name, t] of tensors) {
    header[name] = { dtype: 'F32', shape: t.shape, data_offsets: [at, at + t.data.byteLength] };
    parts.push(Buffer.from(t.data.buffer, t.data.byteOffset, t.data.byteLength));
    at += t.data.byteLength;
  }
  writeFileSync(path, safetensorsBytes(JSON.stringify(header), Buffer.concat(parts)));
}
