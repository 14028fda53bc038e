/**
 * How far the distributions of one model are from those of another one, token by token of a text: Kullback-Leibler divergence, and how
 * often both hold the same token for the likeliest. Pure.
 */

/** Sums over the positions of a text. */
export class Divergence {
  readonly #divergences: number[] = [];
  #same = 0;
  #surprise = 0;
  #otherSurprise = 0;
  #known = 0;

  /** Logits of both models at one position. `next`: the token that follows there, or null at the end of a window. */
  add(logits: Float32Array, other: Float32Array, next: number | null): void {
    const own = normalizer(logits);
    const base = normalizer(other);
    let sum = 0;
    for (let i = 0; i < other.length; i++) {
      const logprob = (other[i] ?? Number.NEGATIVE_INFINITY) - base.offset;
      const p = Math.exp(logprob);
      if (p > 0) sum += p * (logprob - ((logits[i] ?? Number.NEGATIVE_INFINITY) - own.offset));
    }
    // Rounding may leave a little less than nothing.
    this.#divergences.push(Math.max(0, sum));
    if (own.top === base.top) this.#same++;
    if (next === null) return;
    this.#surprise += own.offset - (logits[next] ?? Number.NEGATIVE_INFINITY);
    this.#otherSurprise += base.offset - (other[next] ?? Number.NEGATIVE_INFINITY);
    this.#known++;
  }

  /** Divergences in nats, of `other` as the truth. NaN where nothing was added. */
  report(): DivergenceReport {
    const sorted = Float64Array.from(this.#divergences).sort();
    const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
    const tokens = sorted.length;
    return {
      tokens,
      same_top: this.#same / tokens,
      kl: { mean: sorted.reduce((a, b) => a + b, 0) / tokens, median: at(0.5), p99: at(0.99), max: at(1) },
      perplexity: Math.exp(this.#surprise / this.#known),
      other_perplexity: Math.exp(this.#otherSurprise / this.#known),
    };
  }
}

export interface DivergenceReport {
  readonly tokens: number;
  /** Share of the positions where both have the same likeliest token. */
  readonly same_top: number;
  readonly kl: { readonly mean: number; readonly median: number; readonly p99: number; readonly max: number };
  readonly perplexity: number;
  readonly other_perplexity: number;
}

/** `offset`: what all logits have to lose to be log probabilities. */
function normalizer(logits: Float32Array): { readonly offset: number; readonly top: number } {
  let top = 0;
  for (let i = 1; i < logits.length; i++) if ((logits[i] ?? 0) > (logits[top] ?? 0)) top = i;
  const largest = logits[top] ?? 0;
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp((logits[i] ?? 0) - largest);
  return { offset: largest + Math.log(sum), top };
}
