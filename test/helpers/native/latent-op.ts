/**
 * Latent attention as the op table runs it, which attends to the cached latents themselves, and its reference in float64, which makes the
 * keys and values of every head from them.
 */
import { NarrowCache, type NarrowType } from './narrow-cache.js';
import { floats, PagedCache, runOp, type Setup, type StepRow } from './op-table.js';
import { attendVectors, type FloatType, randomFloats, rmsNorm, rotateHead, roundAll } from './reference-ops.js';

export interface LatentShape {
  readonly heads: number;
  readonly rank: number;
  readonly nope: number;
  readonly rotary: number;
  readonly values: number;
  readonly blockSize: number;
  /** fp8 is with a scale, which is then one of keys and values at once. */
  readonly kvDtype: FloatType | NarrowType;
  /** Tokens of each slot. */
  readonly lengths: readonly number[];
}

/** What the op is given; numbers are of `type`. */
export class LatentCase {
  readonly cache: PagedCache;
  readonly q: Float32Array;
  readonly latent: Float32Array;
  readonly norm: Float32Array;
  /** [heads, nope, rank] and [heads, values, rank]: what kv_b_proj holds. */
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly invFreq: Float32Array;
  readonly scale: number;
  readonly #tokens: number;

  readonly shape: LatentShape;
  readonly rows: readonly StepRow[];
  readonly type: FloatType;
  readonly window: number;

  constructor(shape: LatentShape, rows: readonly StepRow[], type: FloatType, random: () => number, window = 0) {
    this.shape = shape;
    this.rows = rows;
    this.type = type;
    this.window = window;
    const { heads, rank, nope, rotary, values } = shape;
    const headDim = rank + rotary;
    const { kvDtype } = shape;
    const sizes = { ...shape, kvHeads: 1, headDim };
    const scale = Float32Array.of(0.3);
    this.cache =
      kvDtype === 'fp8' || kvDtype === 'int8'
        ? new NarrowCache(sizes, kvDtype, random, kvDtype === 'fp8' ? { k: scale, v: scale } : null)
        : new PagedCache({ ...sizes, kvDtype }, random);
    this.#tokens = rows.reduce((sum, row) => sum + row.count, 0);
    const rounded = (count: number, spread: number): Float32Array => roundAll(type, randomFloats(random, count, spread));
    this.q = rounded(this.#tokens * heads * (nope + rotary), 2);
    this.latent = rounded(this.#tokens * headDim, 1.5);
    this.norm = randomFloats(random, rank);
    this.keys = rounded(heads * nope * rank, 1 / Math.sqrt(rank));
    this.values = rounded(heads * values * rank, 1 / Math.sqrt(rank));
    this.invFreq = Float32Array.from({ length: rotary / 2 }, (_, i) => 10_000 ** ((-2 * i) / rotary));
    this.scale = Math.fround(1 / Math.sqrt(nope + rotary));
  }

  run(setup: Setup): { out: Float32Array; cached: Float32Array } {
    const { heads, rank, nope, rotary, values } = this.shape;
    const transposed = new Float32Array(this.keys.length);
    for (let h = 0; h < heads; h++) {
      for (let n = 0; n < nope; n++)
        for (let r = 0; r < rank; r++) transposed[(h * rank + r) * nope + n] = this.keys[(h * nope + n) * rank + r] ?? Number.NaN;
    }
    const { qkv: _, v: __, ...given } = this.cache.inputs(this.rows, new Float32Array());
    const sizes = { nope_dim: nope, rotary_dim: rotary, value_dim: values, window: this.window };
    const result = runOp(
      setup,
      'latent_attention',
      { ...this.cache.attrs(this.rows), ...sizes, factor: 1.1, norm_eps: 1e-6, scale: this.scale, dtype: this.type },
      { ...given, q: this.q, latent: this.latent, norm: this.norm, inv_freq: this.invFreq, keys: transposed, values: this.values },
    );
    const k = floats(result, 'k');
    return { out: floats(result, 'out'), cached: this.cache instanceof NarrowCache ? this.cache.numbers(k, 'k') : k };
  }

  /** What the cache holds afterwards. */
  cachedReference(): Float64Array {
    const { rank, rotary } = this.shape;
    const want = Float64Array.from(this.cache.k);
    this.#each((row, position, token) => {
      const latent = this.latent.subarray(token * (rank + rotary), (token + 1) * (rank + rotary));
      const at = this.cache.at(row.slot, 0, position, 0);
      want.set(rmsNorm(latent.subarray(0, rank), this.norm, rank, Math.fround(1e-6)), at);
      want.set(this.#rotated(latent.subarray(rank), position), at + rank);
    });
    return want;
  }

  /** The outputs over a cache that holds `cached`. */
  reference(cached: Float32Array): Float64Array {
    const { heads, rank, nope, rotary, values } = this.shape;
    const out = new Float64Array(this.#tokens * heads * values);
    const width = Math.max(nope + rotary, values);
    const wide = (slot: number, end: number, h: number): { k: Float32Array; v: Float32Array } => {
      const k = new Float32Array(end * width);
      const v = new Float32Array(end * width);
      for (let j = 0; j < end; j++) {
        const at = this.cache.at(slot, 0, j, 0);
        const product = (matrix: Float32Array, row: number): number => {
          let sum = 0;
          for (let r = 0; r < rank; r++) sum += (matrix[row * rank + r] ?? Number.NaN) * (cached[at + r] ?? Number.NaN);
          return sum;
        };
        for (let n = 0; n < nope; n++) k[j * width + n] = product(this.keys, h * nope + n);
        k.set(cached.subarray(at + rank, at + rank + rotary), j * width + nope);
        for (let n = 0; n < values; n++) v[j * width + n] = product(this.values, h * values + n);
      }
      return { k, v };
    };
    for (let h = 0; h < heads; h++) {
      const made = new Map<StepRow, { k: Float32Array; v: Float32Array }>();
      for (const row of this.rows) made.set(row, wide(row.slot, row.start + row.count, h));
      this.#each((row, position, token) => {
        const from = (token * heads + h) * (nope + rotary);
        const q = new Float32Array(width);
        q.set(this.q.subarray(from, from + nope));
        q.set(this.#rotated(this.q.subarray(from + nope, from + nope + rotary), position), nope);
        const { k, v } = made.get(row) ?? { k: q, v: q };
        const read = { k, v, at: (j: number) => j * width };
        const attended = attendVectors(q, position, read, { scale: this.scale, window: this.window });
        out.set(attended.subarray(0, values), (token * heads + h) * values);
      });
    }
    return out;
  }

  #rotated(head: Float32Array, position: number): Float64Array {
    const { rotary } = this.shape;
    return rotateHead(head, position, { invFreq: this.invFreq, rotaryDim: rotary, factor: Math.fround(1.1), norm: null, normEps: 0 });
  }

  #each(visit: (row: StepRow, position: number, token: number) => void): void {
    let token = 0;
    for (const row of this.rows) for (let i = 0; i < row.count; i++) visit(row, row.start + i, token++);
  }
}
