/**
 * The bytes of an HTTP body in few pieces, however finely a client has cut it: a chunk of one byte takes a hundred bytes of memory while it is
 * kept by itself, and 4 MiB of them took more than a gigabyte and a minute of the main thread on their way to another one. Used by
 * http-reply.ts.
 */
import { Buffer } from 'node:buffer';

/** So many parts are kept as they came: all of a usual body. */
const FEW_PARTS = 8;
/** So are long ones; shorter ones are put together. */
const LONG_PART_BYTES = 2 ** 14;
const PIECE_BYTES = 2 ** 16;

export class BodyPieces {
  readonly #pieces: Buffer[] = [];
  /** What is being filled, and how far it is. */
  #open: Buffer | null = null;
  #filled = 0;

  /** `part` is no longer the caller's. */
  add(part: Buffer): void {
    if (this.#pieces.length < FEW_PARTS || part.length >= LONG_PART_BYTES) {
      this.#close();
      this.#pieces.push(part);
      return;
    }
    for (let from = 0; from < part.length; ) {
      this.#open ??= Buffer.allocUnsafeSlow(PIECE_BYTES);
      const copied = part.copy(this.#open, this.#filled, from);
      this.#filled += copied;
      from += copied;
      if (this.#filled === PIECE_BYTES) this.#close();
    }
  }

  /** All that was added; nothing is added afterwards. */
  take(): readonly Buffer[] {
    this.#close();
    return this.#pieces;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#open = null;
  }

  #close(): void {
    if (this.#open !== null) this.#pieces.push(this.#open.subarray(0, this.#filled));
    this.#open = null;
    this.#filled = 0;
  }
}
