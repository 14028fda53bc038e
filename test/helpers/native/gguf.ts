/** Writes GGUF files for tests, and opens engines on them. */
import { writeFileSync } from 'node:fs';
import { configLists, ggufConfig } from '../../../config/gguf/config.js';
import { ggufParts } from '../../../config/gguf/files.js';
import { readGgufParts } from '../../../config/gguf/read.js';
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import { openEngine } from './native-engine.js';

/** An engine on a GGUF file, set up as the daemon does. The caller closes it. */
export function openGguf(path: string, options: Partial<EngineOptions> = {}, unsaid: Readonly<Record<string, unknown>> = {}): NativeEngine {
  return openEngine(path, { ...options, modelConfig: options.modelConfig ?? ggufModelConfig(path, unsaid) }, 32, 32);
}

/** EngineOptions.modelConfig of a GGUF file, with keys that its metadata does not say. */
export function ggufModelConfig(path: string, unsaid: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ ...ggufConfig(readGgufParts(ggufParts(path), (key) => configLists.has(key))), ...unsaid });
}

export type Meta = string | number | boolean | { readonly u64: bigint } | readonly string[] | readonly number[];

export interface TensorSpec {
  /** As the file says it: row length first. */
  readonly dims: readonly (number | bigint)[];
  readonly type: number;
  readonly data: Uint8Array;
  /** In place of the right one. */
  readonly offset?: number | bigint;
}

export interface GgufSpec {
  readonly version?: number;
  readonly metadata?: Readonly<Record<string, Meta>> | readonly (readonly [string, Meta])[];
  readonly tensors?: Readonly<Record<string, TensorSpec>> | readonly (readonly [string, TensorSpec])[];
  /** In place of the right ones. */
  readonly numTensors?: bigint;
  readonly numPairs?: bigint;
  /** Of the data behind the head. */
  readonly alignment?: number;
}

export const u32 = (n: number): Buffer => {
  const b = Buffer.alloc(4);
  b.writeUInt32LE(n >>> 0);
  return b;
};
export const u64 = (n: number | bigint): Buffer => {
  const b = Buffer.alloc(8);
  b.writeBigUInt64LE(BigInt(n));
  return b;
};
export const text = (s: string): Buffer => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)]);
const f32 = (n: number): Buffer => {
  const b = Buffer.alloc(4);
  b.writeFloatLE(n);
  return b;
};

function value(v: Meta): Buffer {
  if (typeof v === 'string') return Buffer.concat([u32(8), text(v)]);
  if (typeof v === 'boolean') return Buffer.concat([u32(7), Buffer.from([v ? 1 : 0])]);
  if (typeof v === 'number') return Number.isInteger(v) ? Buffer.concat([u32(4), u32(v)]) : Buffer.concat([u32(6), f32(v)]);
  if ('u64' in v) return Buffer.concat([u32(10), u64(v.u64)]);
  const strings = typeof v[0] === 'string';
  const entries = v.map((entry) => (typeof entry === 'string' ? text(entry) : u32(entry)));
  return Buffer.concat([u32(9), u32(strings ? 8 : 5), u64(v.length), ...entries]);
}

const pairs = <T>(of: Readonly<Record<string, T>> | readonly (readonly [string, T])[]): readonly (readonly [string, T])[] =>
  Array.isArray(of) ? (of as readonly (readonly [string, T])[]) : Object.entries(of);

export function ggufBytes({ version = 3, metadata = {}, tensors = {}, numTensors, numPairs, alignment = 32 }: GgufSpec): Buffer {
  const meta = pairs(metadata);
  const list = pairs(tensors);
  const head: Buffer[] = [Buffer.from('GGUF'), u32(version), u64(numTensors ?? list.length), u64(numPairs ?? meta.length)];
  for (const [key, v] of meta) head.push(text(key), value(v));
  const data: Buffer[] = [];
  let at = 0;
  const pad = (bytes: number): Buffer => Buffer.alloc((alignment - (bytes % alignment)) % alignment);
  for (const [name, t] of list) {
    head.push(text(name), u32(t.dims.length), ...t.dims.map(u64), u32(t.type), u64(t.offset ?? at));
    data.push(Buffer.from(t.data), pad(t.data.length));
    at += t.data.length + pad(t.data.length).length;
  }
  const start = Buffer.concat(head);
  return Buffer.concat([start, pad(start.length), ...data]);
}

export function writeGguf(path: string, spec: GgufSpec): string {
  writeFileSync(path, ggufBytes(spec));
  return path;
}
