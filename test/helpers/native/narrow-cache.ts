/**
 * Keys and values of 8 bits, written for reading: e4m3 by a list of all its numbers, int8 with a scale a row. A NarrowCache is a PagedCache
 * whose `k` and `v` are what its bytes stand for.
 */
import { PagedCache, type PagedShape, type StepRow } from './op-table.js';

export type NarrowType = 'fp8' | 'int8';
export const narrowTypes: readonly NarrowType[] = ['fp8', 'int8'];

/** A scale a head, of keys and of values. */
export interface HeadScales {
  readonly k: Float32Array;
  readonly v: Float32Array;
}

/** The number of each code; NaN of 0x7f and 0xff. */
export const e4m3Numbers: readonly number[] = Array.from({ length: 256 }, (_, code) => {
  const [sign, exponent, mantissa] = [code & 0x80 ? -1 : 1, (code >> 3) & 15, code & 7];
  if ((code & 0x7f) === 0x7f) return Number.NaN;
  return sign * (exponent === 0 ? mantissa * 2 ** -9 : (1 + mantissa / 8) * 2 ** (exponent - 7));
});

/** The nearest whole number, of two the even one. */
export const halfEven = (x: number): number => {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
};

const codeOf = new Map(e4m3Numbers.slice(0, 0x7f).map((number, code) => [number, code]));

/** The nearest, of two the even one; 448 for all beyond. */
export function toE4m3(x: number): number {
  if (Number.isNaN(x)) return 0x7f;
  const size = Math.min(Math.abs(x), 448);
  // Numbers are 2^-9 apart below 2^-6, and from there 8 to a power of two.
  const unit = 2 ** (Math.max(Math.floor(Math.log2(size)), -6) - 3);
  const code = codeOf.get(halfEven(size / unit) * unit) ?? Number.NaN;
  return code | (x < 0 || Object.is(x, -0) ? 0x80 : 0);
}

/** Codes and scale of a row, in the float32 steps that the engine takes. */
export function toInt8(row: ArrayLike<number>): { codes: number[]; scale: number } {
  const numbers = Array.from(row);
  const largest = numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const inverse = largest > Math.fround(1e-30) ? Math.fround(127 / largest) : 0;
  const codes = numbers.map((x) => Math.max(-127, Math.min(127, halfEven(Math.fround(x * inverse)))));
  return { codes, scale: Math.fround(largest / 127) };
}

export class NarrowCache extends PagedCache {
  readonly type: NarrowType;
  readonly scales: HeadScales | null;
  readonly #blockBytes: number;
  readonly #bytes: Readonly<Record<'k' | 'v', Float32Array>>;

  constructor(shape: Omit<PagedShape, 'kvDtype'>, type: NarrowType, random: () => number, scales: HeadScales | null = null) {
    super({ ...shape, kvDtype: 'f32' }, random);
    this.type = type;
    this.scales = scales;
    const rows = shape.kvHeads * shape.blockSize;
    this.#blockBytes = type === 'fp8' ? rows * shape.headDim : Math.ceil((rows * (shape.headDim + 4)) / 16) * 16;
    this.#bytes = { k: this.#encode('k'), v: this.#encode('v') };
  }

  /** What the row at a position holds in `bytes`, which are all of an array: codes, numbers, and of int8 the scale. */
  row(bytes: Float32Array, what: 'k' | 'v', slot: number, head: number, position: number): { codes: number[]; numbers: number[] } {
    const { headDim } = this.shape;
    return this.#decode(bytes, what, this.at(slot, head, position, 0) / headDim);
  }

  bytes(what: 'k' | 'v'): Float32Array {
    return this.#bytes[what];
  }

  /** What all rows of an array stand for, as `k` and `v` hold them. */
  numbers(bytes: Float32Array, what: 'k' | 'v'): Float32Array {
    const { headDim } = this.shape;
    const out = new Float32Array(this[what].length);
    for (let row = 0; row < out.length / headDim; row++) out.set(this.#decode(bytes, what, row).numbers, row * headDim);
    return out;
  }

  /** Codes and scale of a row. */
  copyRow(from: Float32Array, to: Float32Array, slot: number, head: number, position: number): void {
    const { codes, scale } = this.#place(this.at(slot, head, position, 0) / this.shape.headDim);
    to.set(from.subarray(codes, codes + this.shape.headDim), codes);
    if (this.type === 'int8') to.set(from.subarray(scale, scale + 4), scale);
  }

  override attrs(rows: readonly StepRow[]): Record<string, number | string> {
    return { ...super.attrs(rows), kv_dtype: this.type };
  }

  override inputs(rows: readonly StepRow[], qkv: Float32Array): Record<string, Float32Array | Int32Array> {
    const scales = this.scales === null ? {} : { k_scales: this.scales.k, v_scales: this.scales.v };
    return { ...super.inputs(rows, qkv), ...this.#bytes, ...scales };
  }

  /** The head of row `row` of the array, counted over all blocks, and where its codes and its scale begin. */
  #place(row: number): { head: number; codes: number; scale: number } {
    const { kvHeads, blockSize, headDim } = this.shape;
    const rows = kvHeads * blockSize;
    const [block, inside] = [Math.floor(row / rows), row % rows];
    const start = block * this.#blockBytes;
    return { head: Math.floor(inside / blockSize), codes: start + inside * headDim, scale: start + rows * headDim + inside * 4 };
  }

  #encode(what: 'k' | 'v'): Float32Array {
    const { headDim } = this.shape;
    const numbers = this[what];
    const bytes = new Float32Array(this.numBlocks * this.#blockBytes);
    for (let row = 0; row < numbers.length / headDim; row++) {
      const at = this.#place(row);
      const given = numbers.subarray(row * headDim, (row + 1) * headDim);
      if (this.type === 'fp8') {
        const scale = this.scales?.[what][at.head] ?? 1;
        const codes = [...given].map((x) => toE4m3(Math.fround(x / scale)));
        bytes.set(codes, at.codes);
      } else {
        const { codes, scale } = toInt8(given);
        bytes.set([...new Uint8Array(Int8Array.from(codes).buffer)], at.codes);
        bytes.set([...new Uint8Array(Float32Array.of(scale).buffer)], at.scale);
      }
      numbers.set(this.#decode(bytes, what, row).numbers, row * headDim);
    }
    return bytes;
  }

  #decode(bytes: Float32Array, what: 'k' | 'v', row: number): { codes: number[]; numbers: number[] } {
    const at = this.#place(row);
    const codes = [...bytes.subarray(at.codes, at.codes + this.shape.headDim)];
    if (this.type === 'fp8') {
      const scale = this.scales?.[what][at.head] ?? 1;
      return { codes, numbers: codes.map((code) => (e4m3Numbers[code] ?? Number.NaN) * scale) };
    }
    const [scale = Number.NaN] = new Float32Array(Uint8Array.from(bytes.subarray(at.scale, at.scale + 4)).buffer);
    return { codes, numbers: [...Int8Array.from(codes)].map((code) => code * scale) };
  }
}
