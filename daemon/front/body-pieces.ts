/**
 * The bytes of an HTTP body in few pieces, however finely a client has cut it: a chunk of one byte takes a hundred bytes of memory while it is
 * kept by itself, and 4 MiB of them took more than a gigabyte and a minute of the main thread on their way to another one. A part
 * that is not alone in its memory is copied: Node may be reading on there when the piece leaves. Used by http-reply.ts.
 */
import { Buffer } from 'node:buffer';
import { Arriving } from '../../rpc/decode/arriving.js';
import type { Ahead, Pieces } from '../../rpc/decode/pieces.js';

/** So many parts are kept as they came, all of a usual body; none of them leaves at once. */
const FEW_PARTS = 8;
/** So are those of so many bytes that are alone in their memory; others are put together. */
const LONG_PART_BYTES = 2 ** 14;
const PIECE_BYTES = 2 ** 16;

export class BodyPieces {
  readonly #pieces: Arriving;
  #parts = 0;
  /** What is being filled, and how far it is. */
  #open: Buffer | null = null;
  #filled = 0;

  /** `ahead`: where a large body goes while it arrives; null, it waits here. */
  constructor(ahead: Ahead | null = null) {
    this.#pieces = new Arriving(ahead);
  }

  /** `part` is no longer the caller's. */
  add(part: Buffer): void {
    const alone = part.length === part.buffer.byteLength && part.length >= LONG_PART_BYTES;
    if (this.#parts++ < FEW_PARTS || alone) {
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
  take(): Pieces {
    this.#close();
    return this.#pieces.take();
  }

  /** Nobody will read it. */
  drop(): void {
    this.#pieces.drop();
    this.#open = null;
  }

  #close(): void {
    if (this.#open !== null) this.#pieces.push(this.#open.subarray(0, this.#filled));
    this.#open = null;
    this.#filled = 0;
  }
}
