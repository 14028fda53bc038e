/**
 * What token ids stand for, as the tokenizers told it: the names of log-probability records. Main thread; at most one entry an id of the
 * vocabulary, which stays while the model does, because the next request names mostly the same ids.
 */
import type { TokenText } from './client-types.js';
import type { TokenNames } from './messages/requests.js';

export class Names {
  readonly #known = new Map<number, TokenText>();

  /** Several tokenizers may tell the same. */
  learn({ ids, texts }: TokenNames): void {
    for (let i = 0; i < ids.length; i++) this.#known.set(ids[i]!, new Name(texts[i]!)); // the columns have one length
  }

  /** Of an id that no tokenizer told: empty. */
  of(id: number): TokenText {
    return this.#known.get(id) ?? nothing;
  }
}

/** The list of bytes is made when it is asked for first: chats report it, text completions do not. */
class Name implements TokenText {
  readonly token: string;
  #bytes: readonly number[] | null = null;

  /** Invalid bytes show as U+FFFD. */
  constructor(text: string | Uint8Array) {
    this.token = typeof text === 'string' ? text : Buffer.from(text).toString('utf8');
    if (typeof text !== 'string') this.#bytes = [...text];
  }

  get bytes(): readonly number[] {
    this.#bytes ??= [...Buffer.from(this.token, 'utf8')];
    return this.#bytes;
  }
}

const nothing: TokenText = { token: '', bytes: [] };
