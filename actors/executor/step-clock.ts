/**
 * Guesses how long a step will take from recent steps of about the same number of tokens. The executor sleeps on its doorbell for a
 * part of that time, so that the next plan is submitted before the running step ends. Guessing short only costs an early native wait,
 * guessing long would leave the device idle: so the guess is the shorter of the last two steps of its class.
 */

/** Classes of steps: the number of tokens, in powers of two; 32 covers every int32. */
const CLASSES = 32;

export class StepClock {
  readonly #last = new Float64Array(CLASSES);
  readonly #before = new Float64Array(CLASSES);

  /** Milliseconds; 0 while nothing is known. */
  predictMs(numTokens: number): number {
    const c = classOf(numTokens);
    return Math.min(this.#last[c] ?? 0, this.#before[c] ?? 0);
  }

  record(numTokens: number, ms: number): void {
    const c = classOf(numTokens);
    this.#before[c] = this.#last[c] ?? 0;
    this.#last[c] = ms;
  }
}

function classOf(numTokens: number): number {
  return 31 - Math.clz32(Math.max(1, numTokens));
}
