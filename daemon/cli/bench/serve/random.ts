/**
 * Seeded random numbers for requests and their arrivals, so that a run can be made again with --seed: sfc32 (C. Doty-Humphrey), the normal
 * distribution by Box and Muller, gamma by Marsaglia and Tsang (2000). Not those of numpy: equal in distribution, not number by number.
 */
export class Random {
  #a: number;
  #b: number;
  #c = 0x9e3779b9;
  #counter = 1;

  /** `stream`: independent numbers of one seed. */
  constructor(seed: number, stream = 0) {
    this.#a = seed >>> 0;
    this.#b = (Math.floor(seed / 2 ** 32) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
    for (let i = 0; i < 16; i++) this.#word();
  }

  #word(): number {
    const t = (this.#a + this.#b + this.#counter++) >>> 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) >>> 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + t) >>> 0;
    return t;
  }

  /** In [0, 1), 53 bits. */
  uniform(): number {
    return ((this.#word() >>> 5) * 2 ** 26 + (this.#word() >>> 6)) / 2 ** 53;
  }

  /** A whole number from `low` to `high`, both possible. */
  int(low: number, high: number): number {
    return low + Math.floor(this.uniform() * (high - low + 1));
  }

  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  lognormal(median: number, sigma: number): number {
    return median * Math.exp(sigma * this.normal());
  }

  /** Mean shape * scale. */
  gamma(shape: number, scale: number): number {
    if (shape < 1) return this.gamma(shape + 1, scale) * (1 - this.uniform()) ** (1 / shape);
    const d = shape - 1 / 3;
    const c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const x = this.normal();
      const v = (1 + c * x) ** 3;
      if (v <= 0) continue;
      if (Math.log(1 - this.uniform()) < 0.5 * x * x + d * (1 - v + Math.log(v))) return d * v * scale;
    }
  }

  shuffled<T>(items: readonly T[]): T[] {
    const copy = [...items];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      [copy[i], copy[j]] = [copy[j] as T, copy[i] as T]; // proof: both are below the length
    }
    return copy;
  }
}
