/**
 * Which part of a file is asked for next, and how large it is. Pure.
 *
 * What is on its way when a connection breaks or the process dies is fetched again, so parts are small: 1 MiB on all connections together.
 * Over a long line small parts would leave it idle between question and answer; there, and only there, they grow, up to
 * `hub.max_part_bytes`. The shortest wait of the last answers decides, which one slow answer among them does not change.
 */
import { blockBytes, numBlocks } from '../../../config/models/hub-cache.js';

const inFlightBytes = 2 ** 20;
/** A wait that is worth larger parts. */
const longWaitMs = 12;
const numWaits = 8;

/** The size of parts, of all files of a pull. */
export class PartSize {
  readonly #least: number;
  readonly #most: number;
  readonly #waits: number[] = [];
  #bytes: number;

  constructor(connections: number, maxBytes: number) {
    this.#least = Math.max(blockBytes, Math.floor(inFlightBytes / connections / blockBytes) * blockBytes);
    this.#most = Math.max(this.#least, Math.floor(maxBytes / blockBytes) * blockBytes);
    this.#bytes = this.#least;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A part came: its first byte after `waitMs`, the rest in `bodyMs`. */
  came(waitMs: number, bodyMs: number): void {
    this.#waits.push(waitMs);
    if (this.#waits.length > numWaits) this.#waits.shift();
    if (this.#waits.length < numWaits) return;
    const wait = Math.min(...this.#waits);
    if (wait < longWaitMs / 2) this.#bytes = this.#least;
    else if (wait >= longWaitMs && bodyMs < 4 * wait) this.#bytes = Math.min(this.#most, this.#bytes * 2);
  }
}

/** A part on its way: [at, end) is still to come. */
export interface Part {
  /** First byte, of a block. */
  readonly start: number;
  end: number;
}

/** The parts of one file that nobody fetches yet. */
export class Parts {
  readonly #size: number;
  readonly #has: (block: number) => boolean;
  /** Blocks before this one are there or asked for. */
  #next = 0;

  constructor(size: number, has: (block: number) => boolean) {
    this.#size = size;
    this.#has = has;
  }

  /** The next run of missing blocks, of `bytes` at most; null when all are there or on their way. */
  take(bytes: number): Part | null {
    const last = numBlocks(this.#size);
    while (this.#next < last && this.#has(this.#next)) this.#next++;
    if (this.#next >= last) return null;
    const first = this.#next;
    while (this.#next < last && !this.#has(this.#next) && (this.#next - first) * blockBytes < bytes) this.#next++;
    return { start: first * blockBytes, end: Math.min(this.#next * blockBytes, this.#size) };
  }

  /** One answer brings everything to the end of the file. */
  takeRest(): void {
    this.#next = numBlocks(this.#size);
  }
}
