/** How fast a counter grows, as seen by whoever asks now and then. */

/** Those who ask sooner after another are told the same. */
const WINDOW_MS = 1000;

export class Rate {
  #atMs: number;
  #count = 0;
  #perSecond = 0;

  constructor(nowMs: number) {
    this.#atMs = nowMs;
  }

  /** A second, since it was asked before. `count`: now. */
  of(count: number, nowMs: number): number {
    const passedMs = nowMs - this.#atMs;
    if (passedMs < WINDOW_MS) return this.#perSecond;
    this.#perSecond = ((count - this.#count) / passedMs) * 1000;
    this.#atMs = nowMs;
    this.#count = count;
    return this.#perSecond;
  }
}
