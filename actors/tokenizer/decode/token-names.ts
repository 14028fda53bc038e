/**
 * Tells the front what the ids in log-probability records stand for, each id once: a record names up to 21 tokens, and nearly all of
 * them were named before. Runs in the tokenizer thread for requests that ask for logprobs; used by actor.ts and request-state.ts.
 */
import { LOGPROB, LOGPROB_TOP, recordWordsAt } from '../../messages/logprobs.js';
import type { TokenNames } from '../../messages/requests.js';
import type { TokenTable } from '../model/byte-decoder.js';

/** Of all these ids, whoever was told them before. */
export function namesOf(table: TokenTable, ids: Iterable<number>): TokenNames {
  const all = [...ids];
  return { ids: all, texts: all.map((id) => table.texts[id] ?? table.bytes(id)) };
}

export class NamesToTell {
  readonly #table: TokenTable;
  /** 1 for ids that were told or are about to be. */
  readonly #told: Uint8Array;
  #ids: number[] = [];

  constructor(table: TokenTable) {
    this.#table = table;
    this.#told = new Uint8Array(table.size);
  }

  /** Looks at every id of whole records. */
  see(records: Int32Array): void {
    for (let at = 0; at < records.length; at += recordWordsAt(records, at)) {
      this.#see(records[at + LOGPROB.token]!); // at is within the records, which are whole
      const end = at + recordWordsAt(records, at);
      for (let top = at + LOGPROB.top; top < end; top += LOGPROB_TOP.words) this.#see(records[top + LOGPROB_TOP.id]!); // as above
    }
  }

  /** The ids seen since the last call that were never told; null when there are none. */
  take(): TokenNames | null {
    if (this.#ids.length === 0) return null;
    const ids = this.#ids;
    this.#ids = [];
    return namesOf(this.#table, ids);
  }

  #see(id: number): void {
    if (this.#told[id] !== 0) return; // ids beyond the table are undefined here, and stand for nothing
    this.#told[id] = 1;
    this.#ids.push(id);
  }
}
