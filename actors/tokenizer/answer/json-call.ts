/**
 * Reads one call that is written as a JSON object, in pieces: {"name": …, "arguments": {…}} or with "parameters", members in any order,
 * others ignored.
 *
 * It becomes a call as soon as its name, which must be one of those offered, and the first character of its arguments are known; from
 * then on the arguments are told as they come, in the model's own text. An object that is something else before that point has `failed`,
 * and all that was read of it (`raw`) is the caller's again. Behind that point a fault only ends it.
 */
import { type CallSink, isJsonObject, type Names } from './call-reader.js';
import { JsonNest } from './json-nest.js';
import { isSpace } from './marker.js';

type Expected = 'object' | 'key' | 'colon' | 'value' | 'string' | 'nest' | 'scalar' | 'next';
type Role = 'key' | 'name' | 'arguments' | 'other';

const noArguments = '{}';

export class JsonCall {
  state: 'open' | 'done' | 'failed' = 'open';
  /** What was read while it was no call yet. */
  raw = '';
  /** It is a call: its name was told. */
  begun = false;
  readonly #names: Names;
  readonly #out: CallSink;
  readonly #needsArguments: boolean;
  #expected: Expected = 'object';
  /** Of the string, value or key that is being read. */
  #role: Role = 'key';
  #literal = '';
  #escaped = false;
  #nest = new JsonNest();
  #name: string | null = null;
  /** Arguments that wait for the name; null before there are any. */
  #waiting: string | null = null;

  /** @param needsArguments an object without arguments is no call; else one that has none is a call without any. */
  constructor(names: Names, out: CallSink, needsArguments: boolean) {
    this.#names = names;
    this.#out = out;
    this.#needsArguments = needsArguments;
  }

  /** @returns the number of characters read: all while it is open. */
  read(text: string): number {
    let at = 0;
    while (at < text.length && this.state === 'open') at = this.#step(text, at);
    if (!this.begun) this.raw += text.slice(0, at);
    return at;
  }

  #step(text: string, at: number): number {
    switch (this.#expected) {
      case 'string':
        return this.#string(text, at);
      case 'nest':
        return this.#nested(text, at);
      case 'scalar':
        return this.#scalar(text, at);
      default:
        return isSpace(text[at]) ? at + 1 : this.#mark(text[at] ?? '', at);
    }
  }

  /** One character between the values. */
  #mark(c: string, at: number): number {
    const expected = this.#expected;
    if (expected === 'object' && c === '{') this.#expected = 'key';
    else if (expected === 'colon' && c === ':') this.#expected = 'value';
    else if (expected === 'next' && c === ',') this.#expected = 'key';
    else if ((expected === 'next' || expected === 'key') && c === '}') this.#close();
    else if (expected === 'key' && c === '"') return this.#begin('string', 'key', at);
    else if (expected === 'value') return this.#value(c, at);
    else return this.#fail(at);
    return at + 1;
  }

  #value(c: string, at: number): number {
    if (c === '"') return this.#begin('string', this.#role, at);
    if (this.#role === 'name') return this.#fail(at);
    if (c === '{' || (c === '[' && this.#role === 'other')) return this.#begin('nest', this.#role, at);
    return /[-\dtfn]/.test(c) ? this.#begin('scalar', this.#role, at) : this.#fail(at);
  }

  #begin(expected: Expected, role: Role, at: number): number {
    this.#expected = expected;
    this.#role = role;
    this.#literal = '';
    this.#nest = new JsonNest();
    return at;
  }

  #string(text: string, at: number): number {
    const first = this.#literal === '' ? at + 1 : at;
    for (let i = first; i < text.length; i++) {
      const c = text[i];
      if (this.#escaped) this.#escaped = false;
      else if (c === '\\') this.#escaped = true;
      else if (c === '"') {
        this.#literal += text.slice(at, i + 1);
        return this.#word() ? i + 1 : this.#fail(i + 1);
      }
    }
    this.#literal += text.slice(at);
    return text.length;
  }

  /** Takes a whole string literal. @returns false where it must not stand */
  #word(): boolean {
    let word: unknown;
    try {
      word = JSON.parse(this.#literal);
    } catch {
      return false;
    }
    if (typeof word !== 'string') return false;
    this.#expected = this.#role === 'key' ? 'colon' : 'next';
    if (this.#role === 'key') this.#role = this.#roleOf(word);
    else if (this.#role === 'name') {
      if (!this.#names.has(word)) return false;
      this.#name = word;
      if (this.#waiting !== null) this.#tell('');
    } else if (this.#role === 'arguments') {
      // Some models write the object as a text of JSON.
      if (!isJsonObject(word)) return false;
      this.#tell(word);
    }
    return true;
  }

  #roleOf(key: string): Role {
    if (key === 'name' && this.#name === null) return 'name';
    return (key === 'arguments' || key === 'parameters') && this.#waiting === null && !this.begun ? 'arguments' : 'other';
  }

  #nested(text: string, at: number): number {
    const end = this.#nest.read(text, at);
    if (this.#role === 'arguments' && end > at) this.#tell(text.slice(at, end));
    if (this.#nest.state === 'broken') return this.#fail(end);
    if (this.#nest.state === 'closed') this.#expected = 'next';
    return end;
  }

  #scalar(text: string, at: number): number {
    let end = at;
    while (end < text.length && /[-+.\w]/.test(text[end] ?? '')) end++;
    this.#literal += text.slice(at, end);
    if (end === text.length) return end;
    if (this.#role === 'arguments' && this.#literal !== 'null') return this.#fail(end);
    this.#expected = 'next';
    return end;
  }

  #tell(text: string): void {
    const given = (this.#waiting ?? '') + text;
    if (this.#name === null) {
      this.#waiting = given;
      return;
    }
    this.#waiting = null;
    if (!this.begun) this.#out.call(this.#name);
    this.begun = true;
    if (given !== '') this.#out.arguments(given);
  }

  #close(): void {
    this.state = 'done';
    if (this.begun) return;
    if (this.#name === null || this.#needsArguments) this.state = 'failed';
    else this.#tell(noArguments);
  }

  #fail(at: number): number {
    this.state = this.begun ? 'done' : 'failed';
    return at;
  }
}
