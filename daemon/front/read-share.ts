/**
 * How much is read of one connection in a turn of the event loop. libuv reads up to 2 MiB at a stretch while more has come: 3 to 5 ms with
 * what is done with the bytes, and an answer to somebody else takes several turns, so 60 MB that arrived at once made it 30 ms later. Used
 * by websocket.ts and http-reply.ts on the main thread.
 */

/** One read of a socket. A small message is through before it counts. */
const SHARE_BYTES = 2 ** 16;
/** A message that is longer, which none is by default, is read with a pause after each share: there are other clients, and other processes. */
const HURRIED_BYTES = 4 * 2 ** 20;
const PAUSE_MS = 1;

export class ReadShare {
  readonly #again: () => void;
  #taken = 0;
  #ofMessage = 0;
  #over = false;

  /** `again`: called in a later turn, after the share was used up. */
  constructor(again: () => void) {
    this.#again = again;
  }

  /** It is used up: nothing more is to be read in this turn. */
  get over(): boolean {
    return this.#over;
  }

  /** So many bytes were read. */
  took(bytes: number): void {
    this.#taken += bytes;
    this.#ofMessage += bytes;
    if (this.#taken < SHARE_BYTES || this.#over) return;
    this.#over = true;
    if (this.#ofMessage > HURRIED_BYTES) setTimeout(this.#nextTurn, PAUSE_MS);
    else setImmediate(this.#nextTurn);
  }

  /** What comes next is another message. */
  nextMessage(): void {
    this.#ofMessage = 0;
  }

  readonly #nextTurn = (): void => {
    this.#taken = 0;
    this.#over = false;
    this.#again();
  };
}
