/**
 * Streaming answers as server-sent events, as OpenAI's clients read them: a chunk of the answer an event, then the usage when it was asked
 * for, then [DONE]. One door for each HTTP request that may stream; used by http-routes.ts on the main thread.
 *
 *   POST body with stream: true -> choose -> SseSink --data: {chunk}--> response -> end | fail
 *
 * The head of the response leaves with the first event, so that what fails before is an error with its status. Comments keep the
 * connection alive while nothing else is written. Format: the HTML standard, "Server-sent events".
 */
import type { ServerResponse } from 'node:http';
import { type Failure, failureBody } from '../../actors/messages/errors.js';
import { type AnswerHead, chunkOf } from '../../rpc/client/chunk.js';
import { type CallSink, type EndingSinkMaker, type OpenSink, refusedStream, type SinkEvent, type StreamWish } from '../../rpc/sink.js';
import { wireHighWater } from '../../rpc/wire.js';
import { writeHead } from './http-reply.js';

/** Silence before a comment: contract with clients and proxies, which give up after 30 to 60 s. */
const KEEP_ALIVE_MS = 15_000;
/** Looks within that time. */
const LOOKS = 3;

export class SseDoor implements EndingSinkMaker {
  readonly kind = 'sse';
  readonly #response: ServerResponse;
  readonly #keepAliveMs: number;
  #sink: SseSink | null = null;

  constructor(response: ServerResponse, keepAliveMs = KEEP_ALIVE_MS) {
    this.#response = response;
    this.#keepAliveMs = keepAliveMs;
  }

  get opened(): boolean {
    return this.#sink !== null;
  }

  get begun(): boolean {
    return this.#sink?.begun ?? false;
  }

  choose({ stream, usage }: StreamWish): OpenSink {
    if (stream !== true) throw refusedStream('over HTTP it is true or false; progress tokens and credit need a WebSocket');
    return (head, onRoom) => {
      this.#sink = new SseSink(this.#response, { head, usage, onRoom, keepAliveMs: this.#keepAliveMs });
      return this.#sink;
    };
  }

  end(answer: unknown): void {
    const { usage = null } = answer as { readonly usage?: unknown }; // proof: the answer of a method that streams
    this.#sink?.end(usage);
  }

  fail(failure: Failure): void {
    this.#sink?.fail(failure);
  }
}

interface SseOptions {
  readonly head: AnswerHead;
  readonly usage: boolean;
  readonly onRoom: () => void;
  readonly keepAliveMs: number;
}

class SseSink implements CallSink {
  readonly credit = Number.POSITIVE_INFINITY;
  readonly #response: ServerResponse;
  readonly #options: SseOptions;
  readonly #keepAlive: NodeJS.Timeout;
  /** What every chunk begins with. */
  readonly #head: string;
  #numEvents = 0;
  #silentLooks = 0;

  constructor(response: ServerResponse, options: SseOptions) {
    this.#response = response;
    this.#options = options;
    const { choices: _choices, usage: _usage, ...head } = chunkOf(options.head, []);
    this.#head = `data: ${JSON.stringify(head).slice(0, -1)},`;
    this.#keepAlive = setInterval(() => this.#look(), options.keepAliveMs / LOOKS);
    response.on('drain', options.onRoom);
  }

  get begun(): boolean {
    return this.#response.headersSent;
  }

  get full(): boolean {
    return this.#response.writableLength > wireHighWater;
  }

  get numEvents(): number {
    return this.#numEvents;
  }

  /** What OpenAI has no chunk for (a wait, a long prompt) is not told; comments say that the daemon lives. */
  event(event: SinkEvent): void {
    this.#numEvents++;
    if (event.kind !== 'delta') return;
    const fields = JSON.stringify(event.fields ?? {}).slice(1, -1);
    const more = `${fields === '' ? '' : `,${fields}`}${this.#options.usage ? ',"usage":null' : ''}`;
    this.#write(`${this.#head}"choices":${JSON.stringify(event.choices)}${more}}\n\n`);
  }

  watch(): () => boolean {
    const before = this.#response.writableLength;
    return () => this.full && this.#response.writableLength < before;
  }

  close(): void {
    clearInterval(this.#keepAlive);
    this.#response.off('drain', this.#options.onRoom);
  }

  end(usage: unknown): void {
    if (this.#options.usage) this.#write(`${this.#head}"choices":[],"usage":${JSON.stringify(usage)}}\n\n`);
    this.#write('data: [DONE]\n\n');
    this.#response.end();
  }

  fail(failure: Failure): void {
    this.#write(`data: ${failureBody(failure)}\n\n`);
    this.#write('data: [DONE]\n\n');
    this.#response.end();
  }

  #look(): void {
    if (++this.#silentLooks >= LOOKS) this.#write(': the answer is being made\n\n');
  }

  #write(text: string): void {
    const response = this.#response;
    if (response.destroyed) return;
    this.#silentLooks = 0;
    // Proxies are told not to collect events before they pass them on.
    if (!response.headersSent)
      writeHead(response, {
        status: 200,
        body: null,
        headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no' },
      });
    response.write(text);
  }
}
