/** The bytes of a message or body as they came, in one piece or several. */
import { Buffer } from 'node:buffer';

/** The first bytes of a large message, which are in the thread that will decode it (large-messages.ts). */
export class Moved {
  readonly id: number;
  length = 0;

  constructor(id: number) {
    this.id = id;
  }
}

/** Only the first one may have moved, and only of a large message. */
export type Pieces = readonly (Uint8Array | Moved)[];

/** Where pieces go while the rest arrives (arriving.ts). */
export interface Ahead {
  /** Takes bytes of a large message, behind those that have moved. */
  move(pieces: readonly Uint8Array[], moved: Moved | null): Moved;
  /** Forgets what has moved of a message that nobody decodes. Nothing, where it is decoded. */
  drop(pieces: Pieces): void;
}

export function piecesOf(bytes: Uint8Array | Pieces): Pieces {
  return bytes instanceof Uint8Array ? [bytes] : bytes;
}

export function lengthOf(pieces: Pieces): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** All in one; the piece itself when it is alone. Not of a large message. */
export function joined(pieces: Pieces): Uint8Array {
  const here = pieces as readonly Uint8Array[]; // proof: of other messages nothing moves
  const [first] = here;
  return here.length === 1 && first !== undefined ? first : Buffer.concat(here);
}
