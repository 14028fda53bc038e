/**
 * The engine's ops in float64 TypeScript, written for reading: what the op tests compare every backend with.
 *
 * Inputs are float32 arrays as the backend gets them; values that the backend stores in 16 bits go through `roundTo` first, so that
 * an op's error is measured and not the rounding of its inputs. Shapes are row-major.
 */

export type FloatType = 'f32' | 'f16' | 'bf16';
export const floatTypes: readonly FloatType[] = ['f32', 'f16', 'bf16'];

const word = new Uint32Array(1);
const wordFloat = new Float32Array(word.buffer);

/** Nearest value of the type, ties to even. */
export function roundTo(type: FloatType, x: number): number {
  if (type === 'f32') return Math.fround(x);
  wordFloat[0] = x;
  const single = wordFloat[0]!;
  if (type === 'bf16') {
    word[0] = (word[0]! + 0x7fff + ((word[0]! >>> 16) & 1)) & 0xffff0000;
    return wordFloat[0]!;
  }
  const magnitude = Math.abs(single);
  if (magnitude >= 65520) return Math.sign(single) * Infinity;
  // Spacing of binary16 around the value: 2^-10 of its power of two, at least the subnormal 2^-24.
  const exponent = magnitude < 2 ** -14 ? -14 : Math.floor(Math.log2(magnitude));
  const unit = 2 ** (exponent - 10);
  const scaled = single / unit;
  const below = Math.floor(scaled);
  const rest = scaled - below;
  const up = rest > 0.5 || (rest === 0.5 && below % 2 !== 0);
  return (up ? below + 1 : below) * unit;
}

export function roundAll(type: FloatType, values: Float32Array): Float32Array {
  return values.map((x) => roundTo(type, x));
}

/** Deterministic numbers in [0, 1) (mulberry32). */
export function randomSource(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Roughly normal numbers with the given spread. */
export function randomFloats(random: () => number, count: number, spread = 1): Float32Array {
  const sample = () => (random() + random() + random() + random() - 2) * Math.sqrt(3) * spread;
  return Float32Array.from({ length: count }, sample);
}

export function randomInt(random: () => number, low: number, high: number): number {
  return low + Math.floor(random() * (high - low + 1));
}

/** The sum of rows [first, first + count) of x. */
export function summedRows(x: Float32Array, cols: number, first: number, count: number): Float64Array {
  const sum = new Float64Array(cols);
  for (let r = first; r < first + count; r++) for (let c = 0; c < cols; c++) sum[c]! += x[r * cols + c]!;
  return sum;
}

/** Sum of squared errors over sum of squared reference values. */
export function normalizedError(got: Float32Array, want: Float64Array): number {
  if (got.length !== want.length) return Infinity;
  let error = 0;
  let power = 0;
  for (let i = 0; i < want.length; i++) {
    error += (got[i]! - want[i]!) ** 2;
    power += want[i]! ** 2;
  }
  return power === 0 ? error : error / power;
}

export function rmsNorm(x: ArrayLike<number>, weight: Float32Array, cols: number, eps: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += cols) {
    let squares = 0;
    for (let i = 0; i < cols; i++) squares += x[start + i]! ** 2;
    const scale = 1 / Math.sqrt(squares / cols + eps);
    for (let i = 0; i < cols; i++) out[start + i] = x[start + i]! * scale * weight[i]!;
  }
  return out;
}

/** out[r, o] = x[r, :] . weight[o, :] + bias[o] */
export function linear(x: Float32Array | Float64Array, weight: Float32Array, bias: Float32Array | null, cols: number): Float64Array {
  const rows = x.length / cols;
  const outs = weight.length / cols;
  const out = new Float64Array(rows * outs);
  for (let r = 0; r < rows; r++) {
    for (let o = 0; o < outs; o++) {
      let sum = bias === null ? 0 : bias[o]!;
      for (let k = 0; k < cols; k++) sum += x[r * cols + k]! * weight[o * cols + k]!;
      out[r * outs + o] = sum;
    }
  }
  return out;
}

export type Gate = 'silu' | 'gelu_tanh' | 'clamped_swiglu';
export const gates: readonly Gate[] = ['silu', 'gelu_tanh', 'clamped_swiglu'];

/** gate(g) * u */
function gated(gate: Gate, g: number, u: number): number {
  if (gate !== 'clamped_swiglu') return gateOf(gate, g) * u;
  const low = Math.min(g, 7);
  return (low / (1 + Math.exp(-1.702 * low))) * (Math.max(-7, Math.min(7, u)) + 1);
}

function gateOf(gate: Gate, x: number): number {
  if (gate === 'silu') return x / (1 + Math.exp(-x));
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

export function gatedMul(gateUp: Float32Array | Float64Array, cols: number, gate: Gate = 'silu'): Float64Array {
  const rows = gateUp.length / (2 * cols);
  const out = new Float64Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < cols; i++) {
      out[r * cols + i] = gated(gate, gateUp[r * 2 * cols + i]!, gateUp[r * 2 * cols + cols + i]!);
    }
  }
  return out;
}

/** scale * x, and with a cap c: c tanh(scale * x / c). */
export function capped(x: number, scale: number, cap: number): number {
  return cap > 0 ? cap * Math.tanh((scale * x) / cap) : scale * x;
}

export interface AttentionSpec {
  readonly scale: number;
  /** 0 = full. */
  readonly window: number;
  /** 0, as when absent: none. */
  readonly softcap?: number;
  /** A score beside those of the keys, without a value. */
  readonly sink?: number;
}

export interface RopeSpec {
  readonly invFreq: Float32Array;
  readonly rotaryDim: number;
  readonly factor: number;
  readonly norm: Float32Array | null;
  readonly normEps: number;
}

/** One head at one position: norm when there is one, then half-split rotation of its first rotaryDim values. */
export function rotateHead(head: ArrayLike<number>, position: number, spec: RopeSpec): Float64Array {
  const out = spec.norm === null ? Float64Array.from(head) : rmsNorm(head, spec.norm, head.length, spec.normEps);
  const half = spec.rotaryDim / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * spec.invFreq[i]!;
    const cos = Math.cos(angle) * spec.factor;
    const sin = Math.sin(angle) * spec.factor;
    const a = out[i]!;
    const b = out[i + half]!;
    out[i] = a * cos - b * sin;
    out[i + half] = b * cos + a * sin;
  }
  return out;
}

/** Attention of one query head over keys and values given by position. Positions outside (position - window, position] are ignored. */
export function attendOne(
  q: ArrayLike<number>,
  position: number,
  read: { key: (j: number, d: number) => number; value: (j: number, d: number) => number },
  options: AttentionSpec,
): Float64Array {
  const first = options.window > 0 ? Math.max(0, position - options.window + 1) : 0;
  const scores: number[] = [];
  for (let j = first; j <= position; j++) {
    let dot = 0;
    for (let d = 0; d < q.length; d++) dot += q[d]! * read.key(j, d);
    scores.push(capped(dot, options.scale, options.softcap ?? 0));
  }
  const sink = options.sink ?? -Infinity;
  const best = scores.reduce((a, b) => Math.max(a, b), sink);
  const out = new Float64Array(q.length);
  let total = Math.exp(sink - best);
  for (let j = first; j <= position; j++) {
    const p = Math.exp(scores[j - first]! - best);
    total += p;
    for (let d = 0; d < q.length; d++) out[d]! += p * read.value(j, d);
  }
  return out.map((x) => x / total);
}

/** The same over vectors that lie together: `at(j)` is where the one of position j begins in `k` and `v`. Some ten times as fast. */
export function attendVectors(
  q: Float32Array,
  position: number,
  read: { k: Float32Array; v: Float32Array; at: (j: number) => number },
  options: AttentionSpec,
): Float64Array {
  const first = options.window > 0 ? Math.max(0, position - options.window + 1) : 0;
  const scores = new Float64Array(position - first + 1);
  const sink = options.sink ?? -Infinity;
  let best = sink;
  for (let j = first; j <= position; j++) {
    const at = read.at(j);
    let dot = 0;
    for (let d = 0; d < q.length; d++) dot += q[d]! * read.k[at + d]!;
    const score = capped(dot, options.scale, options.softcap ?? 0);
    scores[j - first] = score;
    if (score > best) best = score;
  }
  const out = new Float64Array(q.length);
  let total = Math.exp(sink - best);
  for (let j = first; j <= position; j++) {
    const at = read.at(j);
    const p = Math.exp(scores[j - first]! - best);
    total += p;
    for (let d = 0; d < q.length; d++) out[d]! += p * read.v[at + d]!;
  }
  return out.map((x) => x / total);
}
