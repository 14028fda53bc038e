/**
 * What a tokenizer tells of its work, in counters that the main thread reads: since when it has not got on with something, so that the
 * engine can end one that hangs; and how much of what it was handed it has let go of, so that the front knows what it still holds.
 * One a tokenizer, in its thread.
 */
import { nowMs } from '../../runtime/clock.js';
import { type Counters, TOKENIZER_COUNTER } from '../../runtime/counters.js';

/** Work that goes on elsewhere, on the thread pool or in slices, while the event loop of the tokenizer turns. */
export interface Piece {
  /** It got on: its time counts anew. */
  advanced(): void;
  /** Exactly once. */
  done(): void;
}

export class Workload {
  readonly #counters: Counters;
  /** When each piece began, or last got on; the one that has waited longest first. */
  readonly #since = new Map<Piece, number>();
  /** When the work began that holds the event loop now; 0 = none. */
  #holdingSince = 0;

  constructor(counters: Counters) {
    this.#counters = counters;
  }

  /** Runs work that holds the event loop. */
  during<T>(work: () => T): T {
    const outer = this.#holdingSince;
    if (outer === 0) {
      this.#holdingSince = nowMs();
      this.#publish();
    }
    try {
      return work();
    } finally {
      this.#holdingSince = outer;
      this.#publish();
    }
  }

  begin(): Piece {
    const piece: Piece = {
      advanced: () => {
        this.#since.delete(piece);
        this.#since.set(piece, nowMs());
        this.#publish();
      },
      done: () => {
        this.#since.delete(piece);
        this.#publish();
      },
    };
    piece.advanced();
    return piece;
  }

  /** A prompt, or ids, of this size are not held any more. */
  letGo(size: number): void {
    this.#counters[TOKENIZER_COUNTER.letGo] = (this.#counters[TOKENIZER_COUNTER.letGo] ?? 0) + size;
  }

  #publish(): void {
    let since = this.#holdingSince;
    if (this.#since.size > 0) {
      const [oldest = 0] = this.#since.values();
      if (since === 0 || oldest < since) since = oldest;
    }
    this.#counters[TOKENIZER_COUNTER.busySinceMs] = since;
  }
}
