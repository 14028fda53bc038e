/**
 * A streamed response: each block of the answer is an item, which is added, told in deltas, and done. The last event has the response as a
 * whole. Log-probabilities come with the deltas only: they would fill the last event.
 *
 *   response.created, in_progress, { output_item.added, content_part.added?, deltas, done, content_part.done?, output_item.done },
 *   completed | incomplete | error + failed
 */
import { errorTable, type Failure } from '../../../actors/messages/errors.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import type { SinkEvent } from '../../sink.js';
import { goesOn, logprobsOf, namedEvent, onlyChoice, type Part, partsOf } from '../chat/parts.js';
import type { StreamFormat, StreamStart, StreamWriter } from '../dialect.js';
import { COMMENT } from '../openai/stream.js';
import { errorObject, itemId, type Outcome, outputItem, responseObject, statusOf, textContent } from './answer.js';
import type { OutputItem, ResponsesBody } from './schema.js';

export const responseEvents = (asked: ResponsesBody): StreamFormat => ({
  type: 'text/event-stream',
  open: (start) => new ResponseEvents(asked, start),
});

/** The item that deltas go to. */
interface Open {
  readonly id: string;
  readonly from: Part;
  text: string;
}

class ResponseEvents implements StreamWriter {
  readonly #asked: ResponsesBody;
  readonly #start: StreamStart;
  readonly #output: OutputItem[] = [];
  #open: Open | null = null;
  #next = 0;

  constructor(asked: ResponsesBody, start: StreamStart) {
    this.#asked = asked;
    this.#start = start;
  }

  event(event: SinkEvent): string {
    if (event.kind !== 'delta') return '';
    let text = this.#begin();
    let logprobs = logprobsOf(event.choices);
    for (const part of partsOf(event.choices)) {
      if (!goesOn(this.#open?.from.kind ?? null, part)) text += this.#close('completed') + this.#openItem(part);
      text += this.#delta(part, part.kind === 'text' ? logprobs : []);
      if (part.kind === 'text') logprobs = [];
    }
    return text;
  }

  keepAlive(): string {
    return COMMENT;
  }

  end(answer: unknown): string {
    const completion = answer as ChatCompletion; // proof: the face asks chat.completions.create
    const status = statusOf(onlyChoice(completion).finish_reason);
    const before = this.#begin() + this.#close(status);
    return before + this.#whole(`response.${status}`, { status, output: this.#output, usage: completion.usage });
  }

  fail(failure: Failure): string {
    const { message } = errorObject(failure);
    const begun = this.#begin() + this.#close('incomplete');
    const error = this.#event('error', { code: failure.kind, message, param: null, status: errorTable[failure.kind].status });
    const outcome: Outcome = { status: 'failed', output: this.#output, usage: this.#start.counted(), error: errorObject(failure) };
    return begun + error + this.#whole('response.failed', outcome);
  }

  #event(type: string, members: object): string {
    return namedEvent(type, { sequence_number: this.#next++, ...members });
  }

  #whole(type: string, outcome: Outcome): string {
    return this.#event(type, { response: responseObject(this.#asked, this.#start.head, outcome) });
  }

  #begin(): string {
    if (this.#next > 0) return '';
    const empty: Outcome = { status: 'in_progress', output: [], usage: null };
    return this.#whole('response.created', empty) + this.#whole('response.in_progress', empty);
  }

  get #place() {
    return { item_id: this.#open?.id ?? '', output_index: this.#output.length };
  }

  #openItem(part: Part): string {
    const id = itemId(part.kind);
    this.#open = { id, from: part, text: '' };
    const whole = outputItem(id, part, '', 'in_progress');
    const item = 'content' in whole ? { ...whole, content: [] } : whole;
    const added = this.#event('response.output_item.added', { output_index: this.#output.length, item });
    return part.kind === 'call'
      ? added
      : added + this.#event('response.content_part.added', { ...this.#place, content_index: 0, part: contentPart(part, '') });
  }

  #delta(part: Part, logprobs: readonly object[]): string {
    const { text: delta, kind } = part;
    if (this.#open === null || delta === '') return '';
    this.#open.text += delta;
    if (kind === 'call') return this.#event('response.function_call_arguments.delta', { ...this.#place, delta });
    if (kind === 'reasoning') return this.#event('response.reasoning_text.delta', { ...this.#place, content_index: 0, delta });
    return this.#event('response.output_text.delta', { ...this.#place, content_index: 0, delta, logprobs });
  }

  #close(status: OutputItem['status']): string {
    if (this.#open === null) return '';
    const { id, from, text } = this.#open;
    const done = this.#done(from, text);
    const item = outputItem(id, from, text, status);
    const last = this.#event('response.output_item.done', { output_index: this.#output.length, item });
    this.#output.push(item);
    this.#open = null;
    return done + last;
  }

  #done(from: Part, text: string): string {
    if (from.kind === 'call') {
      return this.#event('response.function_call_arguments.done', { ...this.#place, name: from.start?.name, arguments: text });
    }
    const place = { ...this.#place, content_index: 0 };
    const told =
      from.kind === 'text'
        ? this.#event('response.output_text.done', { ...place, text, logprobs: [] })
        : this.#event('response.reasoning_text.done', { ...place, text });
    return told + this.#event('response.content_part.done', { ...place, part: contentPart(from, text) });
  }
}

function contentPart({ kind }: Part, text: string): object {
  return kind === 'reasoning' ? { type: 'reasoning_text', text } : textContent(text);
}
