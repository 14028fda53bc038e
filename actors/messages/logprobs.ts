/**
 * Log-probabilities as they travel and are kept: one record of int32 words a token, one behind the other.
 *
 *   record = token | logprob | rank | numTop | (id | logprob) * numTop      logprobs are the bits of a float32
 *
 * A token with 20 alternatives is 176 bytes so; as objects it was some 3 kB in each of three threads. What the ids stand for travels
 * beside them, once an id (TokenNames in requests.ts). Written by the scheduler, read where an answer or an event is written.
 */
import { int32Of } from './codec.js';

export const LOGPROB = {
  token: 0,
  /** In the raw distribution. */
  logprob: 1,
  /** 1 + number of better tokens. */
  rank: 2,
  numTop: 3,
  /** numTop alternatives, best first. */
  top: 4,
} as const;
export const LOGPROB_TOP = { id: 0, logprob: 1, words: 2 } as const;

/** Words of a record with `numTop` alternatives. */
export function recordWords(numTop: number): number {
  return LOGPROB.top + numTop * LOGPROB_TOP.words;
}

/** Words of the record that begins at `at`. */
export function recordWordsAt(words: Int32Array, at: number): number {
  return recordWords(words[at + LOGPROB.numTop] ?? 0);
}

/** Records of a message that is being made. */
export class LogprobColumn {
  #words = new Int32Array(0);
  #length = 0;

  /** Copies whole records. */
  add(records: Int32Array): void {
    const end = this.#length + records.length;
    if (end > this.#words.length) {
      const grown = new Int32Array(this.#length === 0 ? end : 2 * end);
      grown.set(this.#words.subarray(0, this.#length));
      this.#words = grown;
    }
    this.#words.set(records, this.#length);
    this.#length = end;
  }

  /** All records as bytes, which belong to the caller; the column is empty then. */
  take(): Uint8Array {
    const bytes = new Uint8Array(this.#words.buffer, 0, 4 * this.#length);
    this.#words = new Int32Array(0);
    this.#length = 0;
    return bytes;
  }
}

/** The records of a Tokens message, one token after the other. */
export class RecordReader {
  /** Of the token that `next` went to: a view, null when it has none. */
  record: Int32Array | null = null;
  logprob = 0;
  readonly #words: Int32Array;
  readonly #floats: Float32Array;
  readonly #lengths: readonly number[];
  #at = 0;

  constructor(bytes: Uint8Array, lengths: readonly number[]) {
    this.#words = int32Of(bytes);
    this.#floats = new Float32Array(this.#words.buffer, this.#words.byteOffset, this.#words.length);
    this.#lengths = lengths;
  }

  /** To be called for every token, in order. */
  next(token: number): void {
    const end = this.#at + (this.#lengths[token] ?? 0);
    const some = end > this.#at;
    this.record = some ? this.#words.subarray(this.#at, end) : null;
    this.logprob = some ? (this.#floats[this.#at + LOGPROB.logprob] ?? 0) : 0;
    this.#at = end;
  }
}
