/**
 * The pieces of a message or body while it arrives. Those of one above 1 MiB go ahead to the thread that will decode it: kept here until the end,
 * 60 MB of them made V8 look through the whole heap of the main thread six times a second, 15 to 25 ms each, as it counts the bytes of
 * buffers. Used by the front on the main thread.
 */
import { aheadBytes } from './large-messages.js';
import type { Ahead, Moved, Pieces } from './pieces.js';

export class Arriving {
  readonly #ahead: Ahead | null;
  #pieces: Uint8Array[] = [];
  #bytes = 0;
  #moved: Moved | null = null;

  /** Null: all stay here. */
  constructor(ahead: Ahead | null) {
    this.#ahead = ahead;
  }

  /** Pieces that are here. */
  get count(): number {
    return this.#pieces.length;
  }

  push(piece: Uint8Array): void {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
    if (this.#ahead === null || this.#bytes <= aheadBytes) return;
    this.#moved = this.#ahead.move(this.#pieces, this.#moved);
    this.#pieces = [];
    this.#bytes = 0;
  }

  /** All of it: the end has come. */
  take(): Pieces {
    return this.#moved === null ? this.#pieces : [this.#moved, ...this.#pieces];
  }

  /** The end will not come. */
  drop(): void {
    this.#ahead?.drop(this.take());
    this.#pieces = [];
    this.#bytes = 0;
    this.#moved = null;
  }
}
