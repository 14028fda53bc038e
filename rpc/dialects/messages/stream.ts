/**
 * A streamed message: each block of the answer is started, told in deltas and stopped; the usage and the reason of the end come last.
 *
 *   message_start, { content_block_start, content_block_delta..., content_block_stop }, message_delta, message_stop | error
 */
import type { Failure } from '../../../actors/messages/errors.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import type { SinkEvent } from '../../sink.js';
import { goesOn, namedEvent, onlyChoice, type Part, partsOf } from '../chat/parts.js';
import type { StreamFormat, StreamStart, StreamWriter } from '../dialect.js';
import { deltaOf, emptyBlock, emptyMessage, endOf, usageObject } from './answer.js';
import { failureObject } from './errors.js';

export const messageEvents: StreamFormat = { type: 'text/event-stream', open: (start) => new MessageEvents(start) };

class MessageEvents implements StreamWriter {
  readonly #start: StreamStart;
  #begun = false;
  /** Of the block that deltas go to. */
  #open: Part['kind'] | null = null;
  #index = -1;

  constructor(start: StreamStart) {
    this.#start = start;
  }

  event(event: SinkEvent): string {
    if (event.kind !== 'delta') return '';
    let text = this.#begin();
    for (const part of partsOf(event.choices)) {
      if (!goesOn(this.#open, part)) {
        text += this.#close();
        this.#open = part.kind;
        text += namedEvent('content_block_start', { index: ++this.#index, content_block: emptyBlock(part) });
      }
      if (part.text !== '') text += namedEvent('content_block_delta', { index: this.#index, delta: deltaOf(part) });
    }
    return text;
  }

  /** While the prompt waits its tokens are not known: message_start says 0 then, and message_delta what they were. */
  keepAlive(): string {
    return this.#begin() + namedEvent('ping');
  }

  end(answer: unknown): string {
    const completion = answer as ChatCompletion; // proof: the face asks chat.completions.create
    const delta = endOf(onlyChoice(completion));
    const before = this.#begin() + this.#close();
    return before + namedEvent('message_delta', { delta, usage: usageObject(completion.usage) }) + namedEvent('message_stop');
  }

  fail(failure: Failure): string {
    return namedEvent('error', failureObject(failure));
  }

  #begin(): string {
    if (this.#begun) return '';
    this.#begun = true;
    return namedEvent('message_start', { message: emptyMessage(this.#start.head, this.#start.counted()) });
  }

  #close(): string {
    if (this.#open === null) return '';
    this.#open = null;
    return namedEvent('content_block_stop', { index: this.#index });
  }
}
