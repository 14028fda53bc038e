/**
 * Reads the answer to a chat prompt as it is decoded: what of it is reasoning, what is content, what are calls of functions. One a
 * sequence; used by decode/request-state.ts in the tokenizer thread.
 *
 *   text --ReasoningReader--> reasoning
 *              └── answer --CallReader--> content, calls, and reasoning where the answer is messages in channels
 *
 * Text comes in pieces of any size, hidden control tokens as units (marker.ts). What is said, joined, is the same however the text is
 * cut, and so are streamed and whole answers. With `parallel` false the first call stays and the others are left out, as in vLLM.
 */
import type { CallPiece } from '../../messages/requests.js';
import type { CallFormat } from './call-format.js';
import type { AnswerSink, CallReader, Names } from './call-reader.js';
import { visible } from './marker.js';
import { type ReasoningFormat, ReasoningReader, type ReasoningSink } from './reasoning-reader.js';

export interface AnswerReaderOptions {
  /** Null: nothing in the answer is a call. */
  readonly calls: { readonly format: CallFormat; readonly names: Names; readonly parallel: boolean } | null;
  /** Null: nothing in the answer is reasoning. `opened`: the prompt ends inside it. */
  readonly reasoning: { readonly format: ReasoningFormat; readonly opened: boolean } | null;
}

/** What was read since the last time. */
export interface AnswerParts {
  readonly content: string;
  readonly reasoning: string;
  /** At most one of each call. */
  readonly calls: readonly CallPiece[];
}

export class AnswerReader {
  readonly #options: AnswerReaderOptions;
  readonly #reasoningReader: ReasoningReader | null;
  readonly #callReader: CallReader | null;
  #content = '';
  #reasoning = '';
  #calls: CallPiece[] = [];
  #numCalls = 0;

  constructor(options: AnswerReaderOptions) {
    this.#options = options;
    const { reasoning, calls } = options;
    const thoughts: ReasoningSink = {
      reasoning: (text) => {
        this.#reasoning += visible(text);
      },
      answer: (text) => this.#answer(text),
    };
    const called: AnswerSink = {
      content: (text) => {
        this.#content += visible(text);
      },
      call: (name) => this.#call(name),
      arguments: (text) => this.#arguments(visible(text)),
      reasoning: thoughts.reasoning,
    };
    this.#reasoningReader = reasoning === null ? null : new ReasoningReader(reasoning.format, reasoning.opened, thoughts);
    this.#callReader = calls === null ? null : calls.format.read(calls.names, called);
  }

  /** What comes next is reasoning; null where the model has none. */
  get reasons(): boolean | null {
    return this.#reasoningReader?.inside ?? this.#callReader?.reasons ?? null;
  }

  push(text: string): void {
    if (this.#reasoningReader === null) this.#answer(text);
    else this.#reasoningReader.push(text);
  }

  /** The answer is over. */
  end(): void {
    this.#reasoningReader?.end();
    this.#callReader?.end();
  }

  take(): AnswerParts {
    const parts = { content: this.#content, reasoning: this.#reasoning, calls: this.#calls };
    this.#content = '';
    this.#reasoning = '';
    this.#calls = [];
    return parts;
  }

  #answer(text: string): void {
    if (this.#callReader === null) this.#content += visible(text);
    else this.#callReader.push(text);
  }

  get #leftOut(): boolean {
    return this.#numCalls > 1 && this.#options.calls?.parallel === false;
  }

  #call(name: string): void {
    this.#numCalls++;
    const { calls } = this.#options;
    if (calls === null || this.#leftOut) return;
    this.#calls.push({ index: this.#numCalls - 1, id: calls.format.newId(), name, arguments: '' });
  }

  #arguments(text: string): void {
    if (text === '' || this.#leftOut) return;
    const index = this.#numCalls - 1;
    const last = this.#calls.at(-1);
    if (last?.index === index) this.#calls[this.#calls.length - 1] = { ...last, arguments: last.arguments + text };
    else this.#calls.push({ index, arguments: text });
  }
}
