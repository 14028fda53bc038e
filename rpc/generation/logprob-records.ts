/**
 * The log-probability records of a prompt, a sequence or a delta on their way into an answer: kept as int32 words, read as entries with
 * text one at a time. A record is described in actors/messages/logprobs.ts.
 */
import type { TokenText } from '../../actors/client-types.js';
import { LOGPROB, LOGPROB_TOP, recordWords, recordWordsAt } from '../../actors/messages/logprobs.js';
import { WordBlocks } from './word-blocks.js';

/** What a token id stands for. */
export type TextOf = (id: number) => TokenText;

/** A token with its log-probability and text, as the API reports it. */
export interface LogprobEntry extends TokenText {
  readonly id: number;
  /** NaN: the token has none, being the first of its prompt. */
  readonly logprob: number;
  readonly rank: number;
  /** Best first. Made anew each time it is read. */
  readonly top: readonly LogprobTop[];
}

export interface LogprobTop extends TokenText {
  readonly id: number;
  readonly logprob: number;
}

/** Entries that can be read again and again. */
export interface LogprobSource extends Iterable<LogprobEntry> {
  /** Entries. */
  readonly size: number;
  /** Words of their records: a measure of what is written. */
  readonly words: number;
}

/** Records in one piece. */
export class RecordView implements LogprobSource {
  readonly size: number;
  readonly #records: Int32Array;
  readonly #textOf: TextOf;

  /** @param records whole ones, not to be changed. */
  constructor(records: Int32Array, textOf: TextOf) {
    this.#records = records;
    this.#textOf = textOf;
    this.size = countRecords(records);
  }

  get words(): number {
    return this.#records.length;
  }

  *[Symbol.iterator](): Generator<LogprobEntry> {
    const records = this.#records;
    const floats = new Float32Array(records.buffer, records.byteOffset, records.length);
    for (let at = 0; at < records.length; at += recordWordsAt(records, at)) yield new Entry(records, floats, at, this.#textOf);
  }
}

/** Records that come bit by bit. */
export class RecordStore implements LogprobSource {
  size = 0;
  readonly #blocks = new WordBlocks();
  readonly #textOf: TextOf;

  constructor(textOf: TextOf) {
    this.#textOf = textOf;
  }

  get words(): number {
    return this.#blocks.length;
  }

  /** Whole records, which may be kept and belong to the store then. */
  add(records: Int32Array): void {
    this.#blocks.add(records);
    this.size += countRecords(records);
  }

  *[Symbol.iterator](): Generator<LogprobEntry> {
    for (const block of this.#blocks) yield* new RecordView(block, this.#textOf);
  }

  /** The same entries as sources of at most `records` each. */
  *parts(records: number): Generator<LogprobSource> {
    for (const block of this.#blocks) {
      for (let from = 0; from < block.length; ) {
        let to = from;
        for (let n = 0; n < records && to < block.length; n++) to += recordWordsAt(block, to);
        yield new RecordView(block.subarray(from, to), this.#textOf);
        from = to;
      }
    }
  }
}

function countRecords(records: Int32Array): number {
  let count = 0;
  for (let at = 0; at < records.length; at += recordWordsAt(records, at)) count++;
  return count;
}

/** An entry that looks up what it is asked for. */
class Entry implements LogprobEntry {
  readonly #records: Int32Array;
  readonly #floats: Float32Array;
  readonly #at: number;
  readonly #textOf: TextOf;

  constructor(records: Int32Array, floats: Float32Array, at: number, textOf: TextOf) {
    this.#records = records;
    this.#floats = floats;
    this.#at = at;
    this.#textOf = textOf;
  }

  get id(): number {
    return this.#records[this.#at + LOGPROB.token]!; // records are whole
  }

  get logprob(): number {
    return this.#floats[this.#at + LOGPROB.logprob]!; // as above
  }

  get rank(): number {
    return this.#records[this.#at + LOGPROB.rank]!; // as above
  }

  get token(): string {
    return this.#textOf(this.id).token;
  }

  get bytes(): readonly number[] {
    return this.#textOf(this.id).bytes;
  }

  get top(): readonly LogprobTop[] {
    const count = this.#records[this.#at + LOGPROB.numTop]!; // as above
    const end = this.#at + recordWords(count);
    const top: LogprobTop[] = [];
    for (let at = this.#at + LOGPROB.top; at < end; at += LOGPROB_TOP.words) {
      const id = this.#records[at + LOGPROB_TOP.id]!; // as above
      top.push(new Top(id, this.#floats[at + LOGPROB_TOP.logprob]!, this.#textOf(id))); // as above
    }
    return top;
  }
}

class Top implements LogprobTop {
  readonly id: number;
  readonly logprob: number;
  readonly #text: TokenText;

  constructor(id: number, logprob: number, text: TokenText) {
    this.id = id;
    this.logprob = logprob;
    this.#text = text;
  }

  get token(): string {
    return this.#text.token;
  }

  get bytes(): readonly number[] {
    return this.#text.bytes;
  }
}
