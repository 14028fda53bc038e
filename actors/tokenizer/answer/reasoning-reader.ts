/**
 * Cuts an answer that begins with reasoning into that and the answer proper. Takes the text in pieces of any size; how it is cut makes no
 * difference. One a sequence; tokenizer thread.
 *
 *   [white space] <think> reasoning </think> answer
 *   reasoning </think> answer                         where the template has opened the reasoning at the end of the prompt
 *
 * Only the beginning of an answer can open reasoning: a marker further on is text. Both texts are given as the model wrote them, line ends
 * beside the markers too, as vLLM does. Reasoning that is cut off has no answer behind it.
 */
import { findMarker, type Marker, markerLength, partialMarker, skipSpace, startsWithMarker } from './marker.js';

/** How a family of models marks its reasoning. */
export interface ReasoningFormat {
  readonly name: string;
  readonly start: Marker;
  readonly end: Marker;
  /** True for the chat templates of such models. */
  readonly fits: (template: string) => boolean;
}

export interface ReasoningSink {
  reasoning(text: string): void;
  answer(text: string): void;
}

/** White space that may stand before the opening marker. */
const MAX_SPACE = 64;

export class ReasoningReader {
  readonly #format: ReasoningFormat;
  readonly #opened: boolean;
  readonly #out: ReasoningSink;
  #state: 'before' | 'inside' | 'behind' = 'before';
  /** Not said yet: may become a marker. */
  #rest = '';

  /** @param opened the prompt ends inside the reasoning. */
  constructor(format: ReasoningFormat, opened: boolean, out: ReasoningSink) {
    this.#format = format;
    this.#opened = opened;
    this.#out = out;
  }

  /** What comes next is reasoning, as far as is known. */
  get inside(): boolean {
    return this.#state === 'inside' || (this.#state === 'before' && this.#opened);
  }

  push(text: string): void {
    if (this.#state === 'behind') {
      this.#out.answer(text);
      return;
    }
    this.#rest += text;
    if (this.#state === 'before') this.#begin();
    if (this.#state === 'inside') this.#reason();
  }

  end(): void {
    const rest = this.#rest;
    this.#rest = '';
    if (rest === '') return;
    if (this.inside) this.#out.reasoning(rest);
    else this.#out.answer(rest);
  }

  #begin(): void {
    const { start } = this.#format;
    const space = skipSpace(this.#rest);
    const body = this.#rest.slice(space);
    const begins = space > MAX_SPACE ? false : startsWithMarker(body, start);
    if (begins === null) return;
    if (begins) this.#rest = body.slice(markerLength(body, start));
    this.#state = begins || this.#opened ? 'inside' : 'behind';
    if (this.#state === 'behind') this.#answer(this.#rest);
  }

  #reason(): void {
    const markers = [this.#format.end];
    const found = findMarker(this.#rest, markers);
    const length = found === null ? this.#rest.length - partialMarker(this.#rest, markers) : found.at;
    if (length > 0) this.#out.reasoning(this.#rest.slice(0, length));
    if (found === null) this.#rest = this.#rest.slice(length);
    else {
      this.#state = 'behind';
      this.#answer(this.#rest.slice(found.end));
    }
  }

  #answer(text: string): void {
    this.#rest = '';
    if (text !== '') this.#out.answer(text);
  }
}
