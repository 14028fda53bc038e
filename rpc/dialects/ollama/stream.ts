/**
 * A streamed answer as lines of JSON: each tells what was gained since the one before, the last has `done` with counts and times. Reasoning and text go
 * out as they come, a call when it is whole.
 */
import type { Failure } from '../../../actors/messages/errors.js';
import { errorTable } from '../../../actors/messages/errors.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import type { Completion, CompletionDelta } from '../../schemas/completion.js';
import type { SinkEvent } from '../../sink.js';
import { logprobsOf, type Part, partsOf } from '../chat/parts.js';
import type { StreamFormat, StreamStart, StreamWriter } from '../dialect.js';
import { type Call, callOf, type Gained, lastLine, line, nothing, type Shape } from './answer.js';
import { errorLine } from './errors.js';

/** `model`: as the client named it. */
export const lines = (model: string, shape: Shape): StreamFormat => ({
  type: 'application/x-ndjson',
  open: (start) => new Lines(model, shape, start),
});

class Lines implements StreamWriter {
  readonly #model: string;
  readonly #shape: Shape;
  readonly #isText: boolean;
  /** A call that more of may come. */
  #open: { readonly name: string; text: string } | null = null;

  constructor(model: string, shape: Shape, { head }: StreamStart) {
    this.#model = model;
    this.#shape = shape;
    this.#isText = head.object === 'text_completion';
  }

  event(event: SinkEvent): string {
    if (event.kind !== 'delta') return '';
    if (this.#isText) {
      const content = (event.choices as readonly CompletionDelta[]).map(({ text }) => text).join(''); // proof: of completions.create
      return content === '' ? '' : this.#line({ ...nothing, content });
    }
    const parts = partsOf(event.choices);
    const calls = parts.flatMap((part) => this.#take(part));
    const logprobs = logprobsOf(event.choices);
    const gained = {
      content: joined(parts, 'text'),
      thinking: joined(parts, 'reasoning'),
      calls,
      logprobs: logprobs.length > 0 ? logprobs : null,
    };
    if (gained.content === '' && gained.thinking === '' && calls.length === 0 && gained.logprobs === null) return '';
    return this.#line(gained);
  }

  /** An answer that gained nothing is harmless. */
  keepAlive(): string {
    return this.#line(nothing);
  }

  end(answer: unknown): string {
    const calls = this.#close();
    const before = calls.length === 0 ? '' : this.#line({ ...nothing, calls });
    return before + text(lastLine(this.#model, this.#shape, nothing, answer as ChatCompletion | Completion)); // proof: of these methods
  }

  fail({ kind, message }: Failure): string {
    return text(errorLine(message ?? errorTable[kind].message));
  }

  #line(gained: Gained): string {
    return text(line(this.#model, this.#shape, gained));
  }

  /** The call that a part ends. */
  #take(part: Part): readonly Call[] {
    if (part.kind === 'call' && part.start === null) {
      if (this.#open !== null) this.#open.text += part.text;
      return [];
    }
    const ended = this.#close();
    if (part.kind === 'call' && part.start !== null) this.#open = { name: part.start.name, text: part.text };
    return ended;
  }

  #close(): readonly Call[] {
    const call = this.#open;
    this.#open = null;
    return call === null ? [] : callOf(call.name, call.text);
  }
}

function joined(parts: readonly Part[], kind: Part['kind']): string {
  return parts.map((part) => (part.kind === kind ? part.text : '')).join('');
}

const text = (value: object): string => `${JSON.stringify(value)}\n`;
