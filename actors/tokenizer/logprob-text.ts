/**
 * Gives log-probabilities the text of their tokens. Runs in the tokenizer thread for requests that ask for logprobs.
 * Texts are kept per token id (at most one entry an id of the vocabulary), because a step may name 21 tokens for each sequence.
 */
import type { LogprobText, TokenLogprob } from '../messages/requests.js';
import type { TokenTable } from './byte-decoder.js';
import { lossy } from './detokenizer.js';

interface TokenText {
  /** Invalid bytes show as U+FFFD. */
  readonly token: string;
  readonly bytes: readonly number[];
}

export class LogprobTexts {
  readonly #table: TokenTable;
  readonly #known = new Map<number, TokenText>();

  constructor(table: TokenTable) {
    this.#table = table;
  }

  /** The entry as the API reports it; special tokens have their own text, even where the answer hides them. */
  describe(entry: TokenLogprob): LogprobText {
    const { token, bytes } = this.#textOf(entry.token);
    const top = entry.top.map(([id, logprob]) => {
      const text = this.#textOf(id);
      return { token: text.token, bytes: text.bytes, id, logprob };
    });
    return { token, bytes, id: entry.token, logprob: entry.logprob, rank: entry.rank, top };
  }

  #textOf(id: number): TokenText {
    let text = this.#known.get(id);
    if (text === undefined) {
      const bytes = this.#table.bytes(id);
      text = { token: lossy(bytes), bytes: [...bytes] };
      this.#known.set(id, text);
    }
    return text;
  }
}
