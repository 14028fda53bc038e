/** The bytes of a message or body as they came, in one piece or several. */
import { Buffer } from 'node:buffer';

export type Pieces = readonly Uint8Array[];

export function piecesOf(bytes: Uint8Array | Pieces): Pieces {
  return bytes instanceof Uint8Array ? [bytes] : bytes;
}

export function lengthOf(pieces: Pieces): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** All in one; the piece itself when it is alone. */
export function joined(pieces: Pieces): Uint8Array {
  const [first] = pieces;
  return pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces);
}
