/**
 * Finds the end of a JSON object or list that comes in pieces, by its brackets and strings. What stands between them is not looked at.
 */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const CLOSER: ReadonlyMap<number, number> = new Map([
  [0x7b, 0x7d],
  [0x5b, 0x5d],
]);

export class JsonNest {
  /** `broken`: a bracket was closed by the other kind. */
  state: 'open' | 'closed' | 'broken' = 'open';
  /** The brackets that are still to come, innermost last. */
  readonly #closers: number[] = [];
  #inString = false;
  #escaped = false;

  /** Reads on at `at`; the first character of all opens it. @returns the index behind the last one that belongs to it */
  read(text: string, at: number): number {
    for (let i = at; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (this.#inString) this.#string(c);
      else if (c === QUOTE) this.#inString = true;
      else if (c === 0x7d || c === 0x5d) {
        if (this.#closers.pop() !== c) {
          this.state = 'broken';
          return i;
        }
        if (this.#closers.length === 0) {
          this.state = 'closed';
          return i + 1;
        }
      } else {
        const closer = CLOSER.get(c);
        if (closer !== undefined) this.#closers.push(closer);
      }
    }
    return text.length;
  }

  #string(c: number): void {
    if (this.#escaped) this.#escaped = false;
    else if (c === BACKSLASH) this.#escaped = true;
    else if (c === QUOTE) this.#inString = false;
  }
}
