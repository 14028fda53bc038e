/**
 * A weight as checkpoints that are quantized store it, rounded to the nearest: the tensors that stand in its place, by the ends of their
 * names. Codes of four bits are less the zero of their group, w = scale (code - zero), and lie eight to a word, the first one lowest.
 */
import { halfEven, toE4m3 } from '../native/narrow-cache.js';
import type { RawTensor } from '../native/safetensors.js';
import { bf16, bf16Bits, bytesOf, f16, f16Bits } from './rounding.js';

/** [rows, cols] */
export interface Matrix {
  readonly rows: number;
  readonly cols: number;
  readonly data: Float32Array;
}
export type StoredWeight = Readonly<Record<string, RawTensor>>;

const top = 15;
const perWord = 8;
/** Which of its eight outputs each field of an AWQ word holds. */
const awqOrder = [0, 2, 4, 6, 1, 3, 5, 7];

function largest(values: Float32Array): number {
  let most = 1e-12;
  for (let i = 0; i < values.length; i++) most = Math.max(most, Math.abs(values[i] ?? 0));
  return most;
}
const within = (x: number, low: number, high: number): number => Math.max(low, Math.min(high, x));

interface Groups {
  /** [rows, cols] */
  readonly codes: Uint8Array;
  /** [rows, groups] */
  readonly scales: Float32Array;
  readonly zeros: Uint8Array;
  readonly count: number;
}

interface Grid {
  readonly size: number;
  /** The zero of every group is in the middle. */
  readonly symmetric: boolean;
  readonly leastZero?: number;
  readonly scale: (x: number) => number;
}

function inGroups({ rows, cols, data }: Matrix, { size, symmetric, leastZero = 0, scale: rounded }: Grid): Groups {
  const count = cols / size;
  const codes = new Uint8Array(rows * cols);
  const scales = new Float32Array(rows * count);
  const zeros = new Uint8Array(rows * count);
  for (let group = 0; group < rows * count; group++) {
    const first = group * size;
    const of = data.subarray(first, first + size);
    let [low, high] = [0, 0];
    for (let i = 0; i < size; i++) [low, high] = [Math.min(low, of[i] ?? 0), Math.max(high, of[i] ?? 0)];
    const scale = rounded(symmetric ? (2 * Math.max(-low, high, 1e-8)) / top : Math.max((high - low) / top, 1e-6));
    const zero = symmetric ? 8 : within(halfEven(-low / scale), leastZero, top);
    scales[group] = scale;
    zeros[group] = zero;
    for (let i = first; i < first + size; i++) codes[i] = within(halfEven((data[i] ?? 0) / scale) + zero, 0, top);
  }
  return { codes, scales, zeros, count };
}

/** A matrix of words; `field`: what one of them holds at one of eight places. */
function words(rows: number, cols: number, field: (row: number, col: number, place: number) => number): RawTensor {
  const data = new Int32Array(rows * cols);
  for (let row = 0; row < rows; row++)
    for (let col = 0; col < cols; col++)
      for (let place = 0; place < perWord; place++) data[row * cols + col]! |= field(row, col, place) << (4 * place); // there is one
  return { dtype: 'I32', shape: [rows, cols], data: bytesOf(data) };
}

export const plainF16 = (shape: readonly number[], data: Float32Array): RawTensor => ({
  dtype: 'F16',
  shape,
  data: bytesOf(Uint16Array.from(data, f16Bits)),
});
export const plainBf16 = (shape: readonly number[], data: Float32Array): RawTensor => ({
  dtype: 'BF16',
  shape,
  data: bytesOf(Uint16Array.from(data, bf16Bits)),
});

function turned(data: Float32Array, rows: number, cols: number): Float32Array {
  return data.map((_, i) => data[(i % rows) * cols + Math.floor(i / rows)] ?? Number.NaN);
}

/** Version 1, which stores zeros as one less and so has none that is 0; columns in place. */
export function gptq(w: Matrix, size: number, symmetric: boolean): StoredWeight {
  const { rows, cols } = w;
  const { codes, scales, zeros, count } = inGroups(w, { size, symmetric, leastZero: 1, scale: f16 });
  return {
    qweight: words(cols / perWord, rows, (line, row, i) => codes[row * cols + line * perWord + i] ?? 0),
    qzeros: words(count, rows / perWord, (group, word, i) => (zeros[(word * perWord + i) * count + group] ?? 0) - 1),
    scales: plainF16([count, rows], turned(scales, rows, count)),
    g_idx: { dtype: 'I32', shape: [cols], data: bytesOf(Int32Array.from({ length: cols }, (_, k) => Math.floor(k / size))) },
  };
}

export function awq(w: Matrix, size: number): StoredWeight {
  const { rows, cols } = w;
  const { codes, scales, zeros, count } = inGroups(w, { size, symmetric: false, scale: f16 });
  const row = (word: number, place: number): number => word * perWord + (awqOrder[place] ?? 0);
  return {
    qweight: words(cols, rows / perWord, (col, word, i) => codes[row(word, i) * cols + col] ?? 0),
    qzeros: words(count, rows / perWord, (group, word, i) => zeros[row(word, i) * count + group] ?? 0),
    scales: plainF16([count, rows], turned(scales, rows, count)),
  };
}

/** Of compressed-tensors: symmetric, in the order of the columns. */
export function packed(w: Matrix, size: number): StoredWeight {
  const { rows, cols } = w;
  const { codes, scales, count } = inGroups(w, { size, symmetric: true, scale: (x) => bf16(f16(x)) });
  return {
    weight_packed: words(rows, cols / perWord, (row, word, i) => codes[row * cols + word * perWord + i] ?? 0),
    weight_scale: plainBf16([rows, count], scales),
    weight_shape: { dtype: 'I64', shape: [2], data: new Uint8Array(BigInt64Array.of(BigInt(rows), BigInt(cols)).buffer) },
  };
}

/** FP8 with a scale for each block of weights, under `name`; the largest of a block becomes 448. */
export function float8({ rows, cols, data }: Matrix, name: string, blockRows: number, blockCols: number): StoredWeight {
  const across = Math.ceil(cols / blockCols);
  const down = Math.ceil(rows / blockRows);
  const codes = new Uint8Array(rows * cols);
  const scales = new Float32Array(down * across);
  for (const block of scales.keys()) {
    const firstRow = Math.floor(block / across) * blockRows;
    const firstCol = (block % across) * blockCols;
    const lines = Array.from({ length: Math.min(blockRows, rows - firstRow) }, (_, i) => (firstRow + i) * cols + firstCol);
    const width = Math.min(blockCols, cols - firstCol);
    const scale = bf16(Math.max(...lines.map((at) => largest(data.subarray(at, at + width)))) / 448);
    scales[block] = scale;
    for (const at of lines) for (let i = at; i < at + width; i++) codes[i] = toE4m3((data[i] ?? 0) / scale);
  }
  return { weight: { dtype: 'F8_E4M3', shape: [rows, cols], data: codes }, [name]: plainBf16([down, across], scales) };
}

/** Blocks of GGUF's Q8_0: the scale of 32 weights, and their codes. */
export function q8Blocks({ data }: Matrix): Uint8Array {
  const out = new Uint8Array((data.length / 32) * 34);
  for (let block = 0; block < data.length / 32; block++) {
    const of = data.subarray(32 * block, 32 * block + 32);
    const d = largest(of) / 127;
    const scale = f16(d);
    out.set(bytesOf(Uint16Array.of(f16Bits(d))), 34 * block);
    for (let i = 0; i < 32; i++) out[34 * block + 2 + i] = scale === 0 ? 0 : within(halfEven((of[i] ?? 0) / scale), -127, 127);
  }
  return out;
}
