/**
 * Cuts a text at the guarded added tokens (control tokens) of a tokenizer. Pure; called by encode/encode.ts for each prompt.
 *
 * Follows the rules of the Hugging Face tokenizers library: tokens searched in the raw text first, then in what lies between them
 * those that are searched in normalized text; leftmost match, longest first; `single_word` needs a word border on both sides;
 * `lstrip` and `rstrip` swallow the white space beside the token.
 */
import type { AddedToken } from './tokenizer-json.js';

/** A run of plain text (`id` null) or one control token. Offsets in UTF-16 units are not kept: only the order matters. */
export interface Segment {
  readonly id: number | null;
  readonly text: string;
}

/** Looks behind because a class before `$` does not match letters outside the basic plane in Node 26.10. */
const WORD_BEFORE = /(?<=[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])$/u;
const WORD_AFTER = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]/u;
const SPACE_BEFORE = /\p{White_Space}$/u;
const SPACE_AFTER = /^\p{White_Space}+/u;

/** One pass over a text for one set of tokens. */
class Pass {
  readonly #pattern: RegExp | null;
  readonly #tokens = new Map<string, AddedToken>();

  constructor(tokens: readonly AddedToken[], spelling: (content: string) => string) {
    for (const token of tokens) {
      const content = spelling(token.content);
      if (content !== '') this.#tokens.set(content, token);
    }
    const longestFirst = [...this.#tokens.keys()].sort((a, b) => b.length - a.length);
    this.#pattern = longestFirst.length === 0 ? null : new RegExp(longestFirst.map(escapeForRegExp).join('|'), 'g');
  }

  cut(text: string, into: Segment[]): void {
    let done = 0;
    if (this.#pattern !== null) {
      for (const match of text.matchAll(this.#pattern)) {
        const token = this.#tokens.get(match[0]);
        if (token === undefined || match.index < done) continue;
        let start = match.index;
        let end = start + match[0].length;
        if (token.singleWord && (WORD_BEFORE.test(text.slice(Math.max(0, start - 2), start)) || WORD_AFTER.test(text.slice(end, end + 2))))
          continue;
        if (token.lstrip) while (start > done && SPACE_BEFORE.test(text.charAt(start - 1))) start--;
        if (token.rstrip) end += SPACE_AFTER.exec(text.slice(end))?.[0].length ?? 0;
        if (start > done) into.push({ id: null, text: text.slice(done, start) });
        into.push({ id: token.id, text: match[0] });
        done = end;
      }
    }
    if (done < text.length) into.push({ id: null, text: done === 0 ? text : text.slice(done) });
  }
}

export class AddedTokenSplitter {
  readonly #raw: Pass;
  readonly #normalized: Pass | null;
  readonly #normalize: (text: string) => string;

  /**
   * @param tokens guarded tokens only.
   * @param normalize applied to each piece between tokens of the first pass, and to the spelling of tokens of the second; the
   * identity when the tokenizer that encodes the pieces normalizes them.
   */
  constructor(tokens: readonly AddedToken[], normalize: (text: string) => string) {
    this.#normalize = normalize;
    this.#raw = new Pass(
      tokens.filter((t) => !t.normalized),
      (content) => content,
    );
    const second = tokens.filter((t) => t.normalized);
    this.#normalized = second.length === 0 ? null : new Pass(second, normalize);
  }

  /** Segments in order; no segment of plain text is empty. */
  split(text: string): Segment[] {
    const first: Segment[] = [];
    this.#raw.cut(text, first);
    if (this.#normalized === null) return first;
    const all: Segment[] = [];
    for (const segment of first) {
      if (segment.id !== null) all.push(segment);
      else this.#normalized.cut(this.#normalize(segment.text), all);
    }
    return all;
  }
}

export function escapeForRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}
