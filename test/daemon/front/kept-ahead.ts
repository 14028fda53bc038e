/** Keeps what goes ahead, in memory that has moved as to another thread: what else was in it is gone for everybody. */
import { Buffer } from 'node:buffer';
import { type Ahead, Moved, type Pieces } from '../../../rpc/decode/pieces.js';

export class KeptAhead implements Ahead {
  readonly #kept = new Map<number, Uint8Array[]>();
  /** Bytes, of all messages. */
  moved = 0;

  /** Messages of which something is kept. */
  get held(): number {
    return this.#kept.size;
  }

  move(pieces: readonly Uint8Array[], moved: Moved | null): Moved {
    const to = moved ?? new Moved(this.moved);
    const own = pieces.map((piece) => (piece.byteLength > piece.buffer.byteLength / 2 ? piece : Uint8Array.from(piece)));
    for (const { length } of own) {
      to.length += length;
      this.moved += length;
    }
    const gone = structuredClone(own, { transfer: own.map(({ buffer }) => buffer as ArrayBuffer) });
    this.#kept.set(to.id, [...(this.#kept.get(to.id) ?? []), ...gone]);
    return to;
  }

  drop(pieces: Pieces): void {
    for (const piece of pieces) if (piece instanceof Moved) this.#kept.delete(piece.id);
  }

  whole(pieces: Pieces): Buffer {
    return Buffer.concat(pieces.flatMap((piece) => (piece instanceof Moved ? (this.#kept.get(piece.id) ?? []) : [piece])));
  }
}
