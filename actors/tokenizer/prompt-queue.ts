/**
 * Lets one prompt through each turn of the event loop, the smallest turn of its client (actors/client-turns.ts) first: rendering a
 * template takes up to some milliseconds and encoding a short text up to one, and the tokens of others go between. Used by encode.ts in
 * the tokenizer thread. Its length is bounded by the front, which admits no more requests than the queue and the running sequences take.
 */
interface Waiter {
  readonly turn: number;
  readonly pass: () => void;
}

export class PromptQueue {
  /** In order. */
  readonly #waiters: Waiter[] = [];
  /** Somebody has passed in this turn of the event loop. */
  #passed = false;

  /** Resolves when the caller may begin, at once if nobody has in this turn of the event loop. */
  async pass(turn: number): Promise<void> {
    if (this.#passed) await this.#wait(turn);
    else this.#close();
  }

  #wait(turn: number): Promise<void> {
    return new Promise((pass) => {
      let at = this.#waiters.length;
      while (at > 0 && this.#waiters[at - 1]!.turn > turn) at--; // 0 < at <= length
      this.#waiters.splice(at, 0, { turn, pass });
    });
  }

  /** Nobody passes before the next turn of the event loop, and then the first in line. */
  #close(): void {
    this.#passed = true;
    setImmediate(() => {
      this.#passed = false;
      const first = this.#waiters.shift();
      if (first === undefined) return;
      this.#close();
      first.pass();
    });
  }
}
