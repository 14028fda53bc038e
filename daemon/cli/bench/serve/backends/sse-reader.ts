/** Server-sent events out of the bytes of a response: the data of each, in order. Format: the HTML standard, "Server-sent events". */
import { StringDecoder } from 'node:string_decoder';

export class SseReader {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onData: (data: string) => void;
  #rest = '';
  #data: string[] = [];

  constructor(onData: (data: string) => void) {
    this.#onData = onData;
  }

  push(bytes: Buffer): void {
    const text = this.#rest + this.#decoder.write(bytes);
    let from = 0;
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n', from)) {
      this.#line(text.slice(from, text[end - 1] === '\r' ? end - 1 : end));
      from = end + 1;
    }
    this.#rest = text.slice(from);
  }

  /** Comments, names and ids say nothing to us. */
  #line(line: string): void {
    if (line.startsWith('data:')) this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
    else if (line === '' && this.#data.length > 0) {
      const data = this.#data.join('\n');
      this.#data = [];
      this.#onData(data);
    }
  }
}
