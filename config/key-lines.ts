/**
 * Finds the line of every key in a TOML text, because the parser reports values without positions and an error of ours must name
 * file, line and key.
 *
 * A scanner, not a second parser: it runs after the text was accepted by the TOML parser and only follows table headers, keys (bare,
 * quoted, dotted), inline tables, arrays and strings. On text it does not understand it may miss a key; it never throws and always
 * ends, because every loop moves forward. Called by load.ts.
 */

/** Joins the parts of a key so that parts holding dots stay apart from dotted keys. */
export const keyPath = (parts: readonly string[]): string => parts.join('\u0000');

/** Line (from 1) where each key or table first appears, by `keyPath` of its full path. */
export function keyLines(text: string): ReadonlyMap<string, number> {
  return new Scanner(text).scan();
}

class Scanner {
  readonly #text: string;
  readonly #lines = new Map<string, number>();
  #at = 0;
  #line = 1;

  constructor(text: string) {
    this.#text = text;
  }

  scan(): ReadonlyMap<string, number> {
    let table: readonly string[] = [];
    while (this.#at < this.#text.length) {
      this.#blank(true);
      if (this.#peek() === '[') {
        while (this.#peek() === '[') this.#step();
        table = this.#key();
        this.#note(table, this.#line);
        this.#skipLine();
      } else if (!this.#pair(table)) this.#skipLine();
    }
    return this.#lines;
  }

  #peek(ahead = 0): string {
    return this.#text[this.#at + ahead] ?? '';
  }

  #step(count = 1): void {
    for (let i = 0; i < count && this.#at < this.#text.length; i++) if (this.#text[this.#at++] === '\n') this.#line++;
  }

  #skipLine(): void {
    while (this.#at < this.#text.length && this.#peek() !== '\n') this.#step();
    this.#step();
  }

  /** Skips spaces and, when `newlines`, line ends and comments. */
  #blank(newlines: boolean): void {
    for (;;) {
      const c = this.#peek();
      if (c === ' ' || c === '\t' || c === '\uFEFF' || (newlines && (c === '\n' || c === '\r'))) this.#step();
      else if (newlines && c === '#') while (this.#at < this.#text.length && this.#peek() !== '\n') this.#step();
      else return;
    }
  }

  #note(path: readonly string[], line: number): void {
    for (let n = 1; n <= path.length; n++) {
      const key = keyPath(path.slice(0, n));
      if (!this.#lines.has(key)) this.#lines.set(key, line);
    }
  }

  /** `key = value` under `table`. False when there is no such thing here. */
  #pair(table: readonly string[]): boolean {
    const line = this.#line;
    const key = this.#key();
    this.#blank(false);
    if (key.length === 0 || this.#peek() !== '=') return false;
    this.#step();
    const path = [...table, ...key];
    this.#note(path, line);
    this.#value(path);
    return true;
  }

  #key(): string[] {
    const parts: string[] = [];
    for (;;) {
      this.#blank(false);
      const c = this.#peek();
      if (c === '"' || c === "'") parts.push(this.#string());
      else {
        const bare = /^[A-Za-z0-9_-]+/.exec(this.#text.slice(this.#at, this.#at + 256))?.[0];
        if (bare === undefined) return parts;
        this.#step(bare.length);
        parts.push(bare);
      }
      this.#blank(false);
      if (this.#peek() !== '.') return parts;
      this.#step();
    }
  }

  /** Skips a value; keys of inline tables are noted. Nested arrays and tables are followed without recursion. */
  #value(path: readonly string[]): void {
    const open: { readonly close: string; readonly path: readonly string[] }[] = [];
    do {
      const inner = open.at(-1);
      this.#blank(inner !== undefined);
      const c = this.#peek();
      if (inner !== undefined && c === inner.close) {
        open.pop();
        this.#step();
      } else if (inner !== undefined && c === ',') this.#step();
      else {
        let here = inner?.path ?? path;
        if (inner?.close === '}') {
          const line = this.#line;
          const key = this.#key();
          this.#blank(true);
          if (key.length === 0 || this.#peek() !== '=') return;
          this.#step();
          this.#blank(true);
          here = [...here, ...key];
          this.#note(here, line);
        }
        const start = this.#peek();
        if (start === '[' || start === '{') {
          open.push({ close: start === '[' ? ']' : '}', path: here });
          this.#step();
        } else if (start === '"' || start === "'") this.#string();
        else while (this.#at < this.#text.length && !/[,\]}\r\n#]/.test(this.#peek())) this.#step();
      }
    } while (open.length > 0 && this.#at < this.#text.length);
  }

  /** Skips a string of any of the four kinds and returns its text; escapes are decoded where JSON knows them. */
  #string(): string {
    const quote = this.#peek();
    const fence = this.#peek(1) === quote && this.#peek(2) === quote ? quote.repeat(3) : quote;
    this.#step(fence.length);
    const from = this.#at;
    while (this.#at < this.#text.length && !this.#text.startsWith(fence, this.#at)) {
      if (fence.length === 1 && this.#peek() === '\n') break;
      this.#step(quote === '"' && this.#peek() === '\\' ? 2 : 1);
    }
    const raw = this.#text.slice(from, this.#at);
    this.#step(fence.length);
    // A multi-line string may end in up to two more quotes.
    for (let extra = 0; fence.length === 3 && extra < 2 && this.#peek() === quote; extra++) this.#step();
    if (quote === "'" || !raw.includes('\\')) return raw;
    try {
      return JSON.parse(`"${raw}"`) as string;
    } catch {
      return raw;
    }
  }
}
