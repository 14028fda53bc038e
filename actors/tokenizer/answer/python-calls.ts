/**
 * An answer that is a Python list of calls: [get_weather(city="Paris", days=3), now()]. Arguments are given by name and are literals:
 * strings, numbers, True, False, None (and JSON's spellings of these), lists, tuples and dicts. They become the JSON text that
 * Python's json.dumps writes.
 */
import type { Names, WholeCall } from './call-reader.js';
import type { HeldCalls } from './held-reader.js';

/** Nesting of literals. */
const MAX_DEPTH = 64;
/** Characters up to the first parenthesis. */
const MAX_HEAD = 256;
const NAME = /[A-Za-z_][\w.-]*/y;
const KEY = /[A-Za-z_]\w*/y;
const NUMBER = /[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?/y;
const SPACE = /\s*/y;
const WORDS: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
  ...['true', 'false', 'null'].map((word) => [word, word] as const),
]);
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', b: '\b', f: '\f', v: '\v', a: '\x07', 0: '\0', '\n': '' };

export class PythonCalls implements HeldCalls {
  readonly #names: Names;
  #text = '';
  /** A call of a function that was offered has begun: only the end can tell more. */
  #begun = false;

  constructor(names: Names) {
    this.#names = names;
  }

  read(text: string): boolean {
    this.#text += text;
    if (this.#begun) return true;
    const head = this.#text.slice(0, MAX_HEAD);
    const name = /^\s*\[\s*([\w.-]*)\s*(\(?)/.exec(head);
    if (name?.[2] === '(') {
      this.#begun = true;
      return this.#names.has(name[1] ?? '');
    }
    if (this.#text.length >= MAX_HEAD) return false;
    if (name === null) return head.trim() === '';
    return name[0].length === head.length && [...this.#names].some((one) => one.startsWith(name[1] ?? ''));
  }

  end(): readonly WholeCall[] | null {
    try {
      return new Literals(this.#text, this.#names).calls();
    } catch (error) {
      if (error instanceof NoCall) return null;
      throw error;
    }
  }
}

class NoCall extends Error {}

/** Reads from the front; throws NoCall at what it does not know. */
class Literals {
  readonly #text: string;
  readonly #names: Names;
  #at = 0;

  constructor(text: string, names: Names) {
    this.#text = text;
    this.#names = names;
  }

  calls(): readonly WholeCall[] {
    const calls = this.#items('[', ']', () => this.#call());
    if (calls.length === 0 || this.#at < this.#text.length) throw new NoCall();
    return calls;
  }

  #call(): WholeCall {
    const name = this.#match(NAME);
    if (!this.#names.has(name)) throw new NoCall();
    const seen = new Set<string>();
    const members = this.#items('(', ')', () => {
      const key = this.#match(KEY);
      if (seen.has(key)) throw new NoCall();
      seen.add(key);
      this.#take('=');
      return `${JSON.stringify(key)}: ${this.#value(0)}`;
    });
    return { name, arguments: `{${members.join(', ')}}` };
  }

  /** A literal as JSON text. */
  #value(depth: number): string {
    if (depth > MAX_DEPTH) throw new NoCall();
    this.#skip();
    const c = this.#text[this.#at] ?? '';
    if (c === '"' || c === "'") return JSON.stringify(this.#string(c));
    if (c === '[') return `[${this.#items('[', ']', () => this.#value(depth + 1)).join(', ')}]`;
    if (c === '(') return `[${this.#items('(', ')', () => this.#value(depth + 1)).join(', ')}]`;
    if (c === '{') return `{${this.#items('{', '}', () => this.#member(depth + 1)).join(', ')}}`;
    if (/[-+.\d]/.test(c)) return this.#number();
    const word = WORDS.get(this.#match(KEY));
    if (word === undefined) throw new NoCall();
    return word;
  }

  #member(depth: number): string {
    this.#skip();
    const quote = this.#text[this.#at] ?? '';
    if (quote !== '"' && quote !== "'") throw new NoCall();
    const key = this.#string(quote);
    this.#take(':');
    return `${JSON.stringify(key)}: ${this.#value(depth)}`;
  }

  #number(): string {
    const digits = this.#match(NUMBER).replaceAll('_', '');
    // As they are: a double would round large ones.
    if (/^-?(?:0|[1-9]\d*)$/.test(digits)) return digits;
    const value = Number(digits);
    if (!Number.isFinite(value)) throw new NoCall();
    return JSON.stringify(value);
  }

  #string(quote: string): string {
    let text = '';
    for (let i = this.#at + 1; i < this.#text.length; i++) {
      const c = this.#text[i] ?? '';
      if (c === quote) {
        this.#at = i + 1;
        this.#skip();
        return text;
      }
      if (c !== '\\') {
        text += c;
        continue;
      }
      const next = this.#text[++i] ?? '';
      const digits = { x: 2, u: 4, U: 8 }[next];
      if (digits === undefined) {
        text += ESCAPES[next] ?? (next === quote || next === '\\' || next === '"' || next === "'" ? next : `\\${next}`);
        continue;
      }
      const hex = this.#text.slice(i + 1, i + 1 + digits);
      const code = Number.parseInt(hex, 16);
      if (!/^[\da-fA-F]+$/.test(hex) || hex.length < digits || code > 0x10ffff) throw new NoCall();
      text += digits === 8 ? String.fromCodePoint(code) : String.fromCharCode(code);
      i += digits;
    }
    throw new NoCall();
  }

  /** What stands between two brackets, with commas between; one may follow the last. */
  #items<T>(open: string, close: string, item: () => T): T[] {
    this.#take(open);
    const items: T[] = [];
    while (this.#text[this.#at] !== close) {
      items.push(item());
      if (this.#text[this.#at] === ',') this.#take(',');
      else if (this.#text[this.#at] !== close) throw new NoCall();
    }
    this.#take(close);
    return items;
  }

  #take(c: string): void {
    this.#skip();
    if (this.#text[this.#at] !== c) throw new NoCall();
    this.#at++;
    this.#skip();
  }

  #match(pattern: RegExp): string {
    this.#skip();
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined || found === '') throw new NoCall();
    this.#at += found.length;
    this.#skip();
    return found;
  }

  #skip(): void {
    SPACE.lastIndex = this.#at;
    this.#at += SPACE.exec(this.#text)?.[0].length ?? 0;
  }
}
