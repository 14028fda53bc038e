/**
 * Sampling in float64 TypeScript, straight from the definitions: sorts everything, shortens nothing. What the sampler tests compare
 * every backend with. Formulas and order are those of vLLM V1; random numbers are Philox4x32-10.
 */
import { defaultSampling, type SamplingValues } from '../../../actors/messages/sampling.js';

export interface SamplerParams extends SamplingValues {
  readonly bias: readonly (readonly [id: number, value: number])[];
  readonly masked: readonly number[];
  readonly prompt: readonly number[];
  readonly output: readonly number[];
  /** Ids that a grammar allows; every id when absent. */
  readonly allowed?: ReadonlySet<number>;
}

export const plainParams: SamplerParams = {
  ...defaultSampling,
  bias: [],
  masked: [],
  prompt: [],
  output: [],
};

function logSumExp(values: readonly number[]): number {
  const best = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return best + Math.log(values.reduce((sum, x) => sum + Math.exp(x - best), 0));
}

/** Raw log-probabilities. */
export function logProbs(logits: Float32Array): number[] {
  const values = [...logits].map((x) => (Number.isNaN(x) ? -Infinity : x));
  const total = logSumExp(values);
  return values.map((x) => x - total);
}

/** Ids from best to worst; equal values by lower id. */
export function ranking(values: ArrayLike<number>): number[] {
  return Array.from(values, (_, id) => id).sort((a, b) => values[b]! - values[a]! || a - b);
}

/** Logits after mask, bias, penalties and the grammar's mask, in the float32 steps that the engine takes. */
export function editLogits(logits: Float32Array, p: SamplerParams): Float32Array {
  const z = logits.map((x) => (Number.isNaN(x) ? -Infinity : x));
  if (p.output.length < p.min_tokens) for (const id of p.masked) z[id] = -Infinity;
  for (const [id, value] of p.bias) z[id]! += Math.fround(value);
  for (const id of new Set([...p.prompt, ...p.output])) {
    const r = Math.fround(p.repetition_penalty);
    z[id] = z[id]! > 0 ? z[id]! / r : z[id]! * r;
    const count = p.output.filter((o) => o === id).length;
    z[id]! -= Math.fround(Math.fround(p.frequency_penalty) * count);
    if (count > 0) z[id]! -= Math.fround(p.presence_penalty);
  }
  const { allowed } = p;
  return allowed === undefined ? z : z.map((x, id) => (allowed.has(id) ? x : -Infinity));
}

/** Keeps the shortest prefix of `order` whose share of the mass reaches `share`; at least one id. */
function keepShare(order: readonly number[], mass: (id: number) => number, share: number): number[] {
  const total = order.reduce((sum, id) => sum + mass(id), 0);
  const kept: number[] = [];
  let held = 0;
  for (const id of order) {
    if (kept.length > 0 && held >= share * total) break;
    kept.push(id);
    held += mass(id);
  }
  return kept;
}

/** The distribution that is drawn from: id -> probability. Greedy gives one id. */
export function distribution(logits: Float32Array, p: SamplerParams): Map<number, number> {
  const z = editLogits(logits, p);
  const order = ranking(z);
  if (p.temperature < 1e-5 || z[order[0]!] === -Infinity) return new Map([[order[0]!, 1]]);
  const best = z[order[0]!]!;
  const mass = (id: number) => Math.exp((z[id]! - best) / Math.fround(p.temperature));
  let kept = order.filter((id) => mass(id) > 0);
  if (p.min_p > 0) kept = kept.filter((id) => mass(id) >= Math.fround(p.min_p));
  if (p.top_k > 0) kept = kept.slice(0, p.top_k);
  if (p.top_p < 1) kept = keepShare(kept, mass, Math.fround(p.top_p));
  if (p.typical_p < 1) {
    const total = kept.reduce((sum, id) => sum + mass(id), 0);
    const information = (id: number) => -Math.log(mass(id) / total);
    const entropy = kept.reduce((sum, id) => sum + (mass(id) / total) * information(id), 0);
    const score = (id: number) => Math.abs(information(id) - entropy);
    kept = keepShare(
      [...kept].sort((a, b) => score(a) - score(b) || a - b),
      mass,
      Math.fround(p.typical_p),
    );
  }
  const total = kept.reduce((sum, id) => sum + mass(id), 0);
  return new Map([...kept].sort((a, b) => a - b).map((id) => [id, mass(id) / total]));
}

/** Philox4x32-10. */
export function philox(counter: readonly number[], key: readonly number[]): number[] {
  let [c0, c1, c2, c3] = counter.map((x) => BigInt(x >>> 0)) as [bigint, bigint, bigint, bigint];
  let [k0, k1] = key.map((x) => BigInt(x >>> 0)) as [bigint, bigint];
  const mask = 0xffffffffn;
  for (let round = 0; round < 10; round++) {
    const a = 0xd2511f53n * c0;
    const b = 0xcd9e8d57n * c2;
    [c0, c1, c2, c3] = [(b >> 32n) ^ c1 ^ k0, b & mask, (a >> 32n) ^ c3 ^ k1, a & mask];
    k0 = (k0 + 0x9e3779b9n) & mask;
    k1 = (k1 + 0xbb67ae85n) & mask;
  }
  return [c0, c1, c2, c3].map(Number);
}

/** The uniform number of an output position. */
export function uniformDraw(seed: readonly [lo: number, hi: number], position: number, sequence: number): number {
  const [a, b] = philox([position, sequence, 0, 0], seed) as [number, number, number, number];
  return Number(((BigInt(a) << 32n) | BigInt(b)) >> 11n) * 2 ** -53;
}

/**
 * Ids that a draw at `uniform` may give: the inverse of the cumulative distribution in the order of ids, and its neighbours when
 * `uniform` lies within `slack` of a border (float32 sums place borders a little differently).
 */
export function acceptableDraws(probabilities: ReadonlyMap<number, number>, uniform: number, slack: number): Set<number> {
  const ids = new Set<number>();
  let held = 0;
  for (const [id, p] of probabilities) {
    if (uniform >= held - slack && uniform < held + p + slack) ids.add(id);
    held += p;
  }
  return ids;
}
