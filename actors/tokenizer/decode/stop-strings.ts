/**
 * Finds stop strings in the text of a sequence while it grows, and holds back only text that may still become one.
 * Runs in the tokenizer thread; one StopStrings a request, one StopMatcher a sequence.
 *
 * Each stop string keeps the length of its longest prefix that ends the text so far (Knuth, Morris and Pratt 1977), so a match that
 * spans tokens or starts inside one is found in time linear in the new text, whatever the stop strings look like. The text held
 * back is the longest of those prefixes: anything before it can be part of no later match.
 */

/** Stop strings of one request, ready to search. */
export class StopStrings {
  readonly list: readonly string[];
  readonly failures: readonly Int32Array[];

  /** @param list in the caller's order; empty strings are dropped. A lone surrogate becomes U+FFFD, as in the text it is searched in. */
  constructor(list: readonly string[]) {
    this.list = list.filter((s) => s !== '').map((s) => s.toWellFormed());
    this.failures = this.list.map(failureTable);
  }
}

function failureTable(pattern: string): Int32Array {
  const table = new Int32Array(pattern.length);
  for (let i = 1, k = 0; i < pattern.length; i++) {
    while (k > 0 && pattern.charCodeAt(i) !== pattern.charCodeAt(k)) k = table[k - 1]!; // 0 < k < length
    if (pattern.charCodeAt(i) === pattern.charCodeAt(k)) k++;
    table[i] = k;
  }
  return table;
}

export class StopMatcher {
  readonly #stops: StopStrings;
  readonly #includeStop: boolean;
  /** Matched prefix length of each stop string. */
  readonly #state: Int32Array;
  #held = '';
  /** The stop string that was found; nothing may be pushed after that. */
  matched: string | null = null;

  constructor(stops: StopStrings, includeStop: boolean) {
    this.#stops = stops;
    this.#includeStop = includeStop;
    this.#state = new Int32Array(stops.list.length);
  }

  /**
   * Takes new text and returns what may be shown. When `matched` is set on return, that is the last of it: cut at the start of the
   * stop string (behind it with includeStop). Of several matches the one that starts first wins, then the one listed first.
   * @param check false while min_tokens is not reached: a match that ends inside this text is none.
   */
  push(text: string, check: boolean): string {
    const { list, failures } = this.#stops;
    const state = this.#state;
    const all = this.#held + text;
    let start = -1;
    let keep = 0;
    for (let s = 0; s < list.length; s++) {
      const pattern = list[s]!; // s < length, for all three tables
      const failure = failures[s]!;
      let k = state[s]!;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        while (k > 0 && pattern.charCodeAt(k) !== unit) k = failure[k - 1]!; // 0 < k < pattern.length
        if (pattern.charCodeAt(k) === unit) k++;
        if (k < pattern.length) continue;
        k = failure[k - 1]!; // k = pattern.length > 0
        if (!check) continue;
        const found = this.#held.length + i + 1 - pattern.length;
        if (start < 0 || found < start) {
          start = found;
          this.matched = pattern;
        }
        break;
      }
      state[s] = k;
      if (k > keep) keep = k;
    }
    if (this.matched !== null) {
      this.#held = '';
      return all.slice(0, this.#includeStop ? start + this.matched.length : start);
    }
    this.#held = keep === 0 ? '' : all.slice(all.length - keep);
    return keep === 0 ? all : all.slice(0, all.length - keep);
  }

  /** The sequence ended without a match, or something that is no text comes between: what was held back is text. */
  flush(): string {
    const rest = this.#held;
    this.#held = '';
    this.#state.fill(0);
    return rest;
  }
}
