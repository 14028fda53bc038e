/**
 * What answers hold until they are written: log-probabilities, token ids and long texts, in bytes, over all calls together. A message's
 * calls take what they are going to hold, and who writes the reply gives it back when the last byte has left or nobody wants it any more.
 * Main thread.
 */
import { InferdError } from '../actors/messages/errors.js';

/** Bytes that all answers may hold together. */
export class HoldingLimit {
  readonly #limit: number;
  #held = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get held(): number {
    return this.#held;
  }

  /** For the answer to one message. */
  open(): Holding {
    return new Holding((bytes) => {
      if (bytes > 0 && this.#held + bytes > this.#limit) return false;
      this.#held += bytes;
      return true;
    });
  }
}

export class Holding {
  readonly #change: (bytes: number) => boolean;
  #held = 0;
  #over = false;

  constructor(change: (bytes: number) => boolean) {
    this.#change = change;
  }

  /** False, and nothing is taken, when there is no room for `bytes` more, or the reply has left without them: the call was cancelled. */
  take(bytes: number): boolean {
    if (this.#over || !this.#change(bytes)) return false;
    this.#held += bytes;
    return true;
  }

  /** The reply has left. May be called twice. */
  release(): void {
    this.#over = true;
    if (this.#held > 0) this.#change(-this.#held);
    this.#held = 0;
  }
}

/** The refusal of a call for whose answer there is no room now. */
export function tooManyAnswers(): InferdError {
  return new InferdError('overloaded', 'Too many large answers are being made and written; try again later', { retry_after_ms: 1000 });
}
