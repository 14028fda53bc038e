/** An answer that is nothing but calls written as JSON objects, with `;` or white space between them, as models of the Llama 3 family do. */
import { type CallSink, isJsonObject, type Names, type WholeCall } from './call-reader.js';
import type { HeldCalls } from './held-reader.js';
import { JsonCall } from './json-call.js';
import { isSpace } from './marker.js';

export class JsonSequence implements HeldCalls {
  readonly #names: Names;
  readonly #calls: WholeCall[] = [];
  #call: JsonCall | null = null;
  #name = '';
  #arguments: string[] = [];
  readonly #out: CallSink = {
    content() {},
    call: (name) => {
      this.#name = name;
      this.#arguments = [];
    },
    arguments: (text) => void this.#arguments.push(text),
  };

  constructor(names: Names) {
    this.#names = names;
  }

  read(text: string): boolean {
    let at = 0;
    while (at < text.length) {
      if (this.#call === null) {
        const c = text[at] ?? '';
        if (isSpace(c) || (c === ';' && this.#calls.length > 0)) {
          at++;
          continue;
        }
        if (c !== '{') return false;
        this.#call = new JsonCall(this.#names, this.#out, true);
      }
      at += this.#call.read(text.slice(at));
      if (this.#call.state !== 'open' && !this.#over(this.#call)) return false;
    }
    return true;
  }

  end(): readonly WholeCall[] | null {
    return this.#call === null && this.#calls.length > 0 ? this.#calls : null;
  }

  /** @returns false when the object is no call */
  #over({ state }: JsonCall): boolean {
    this.#call = null;
    const given = this.#arguments.join('');
    if (state === 'failed' || !isJsonObject(given)) return false;
    this.#calls.push({ name: this.#name, arguments: given });
    return true;
  }
}
