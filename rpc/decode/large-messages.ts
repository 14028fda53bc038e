/**
 * Decodes large messages in threads of their own, so that the event loop, and with it every other client, goes on meanwhile: checking and
 * parsing 60 MB takes a tenth of a second, text beyond Latin-1 ten times that, and half a million numbers in a single megabyte 50 ms. The
 * bytes move there and are not copied, those of the largest while the rest arrives (arriving.ts). Messages that are not so large have a
 * thread beside, or they would wait for those that are.
 * Main thread; one for each RpcServer.
 */
import type { Message } from '../message.js';
import type { TextLimits } from './cut-texts.js';
import type { Decoded, Encoding } from './decode.js';
import { type DecodeAs, DecodeThread } from './decode-thread.js';
import { type Ahead, lengthOf, Moved, type Pieces } from './pieces.js';

/** Messages above this are large: one takes some milliseconds to decode, whatever it holds. */
export const largeBytes = 2 ** 17;

/** Pieces of messages above this go ahead: it takes tens of milliseconds to decode one. */
export const aheadBytes = 2 ** 20;

export class LargeMessages implements Ahead {
  readonly #maxBytes: number;
  readonly #limits: () => TextLimits;
  readonly #large = new DecodeThread();
  readonly #largest = new DecodeThread();

  /** `maxBytes`: of one message. `limits`: of the models that are loaded. */
  constructor(maxBytes: number, limits: () => TextLimits) {
    this.#maxBytes = maxBytes;
    this.#limits = limits;
  }

  /** As decodeMessage, but texts that are too long are cut (cut-texts.ts). The bytes are gone afterwards. */
  message(pieces: Pieces, encoding: Encoding): Promise<Message> {
    return this.#decode(pieces, encoding, '') as Promise<Message>; // proof: what the thread does with an encoding
  }

  /** As decodeValue, of the body of a request to a face. The bytes are gone afterwards. */
  value(pieces: Pieces, face: string): Promise<Decoded> {
    return this.#decode(pieces, 'value', face) as Promise<Decoded>; // proof: as above
  }

  move(pieces: readonly Uint8Array[], moved: Moved | null): Moved {
    return this.#largest.move(pieces, moved);
  }

  drop(pieces: Pieces): void {
    this.#largest.drop(pieces);
  }

  #decode(pieces: Pieces, as: DecodeAs, face: string): Promise<Message | Decoded> {
    const thread = pieces[0] instanceof Moved || lengthOf(pieces) > aheadBytes ? this.#largest : this.#large;
    return thread.decode(pieces, { as, face, maxBytes: this.#maxBytes, limits: this.#limits() });
  }
}
