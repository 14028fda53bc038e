/**
 * Streaming answers over HTTP, as a format writes them: server-sent events, or lines of JSON. One door for each HTTP request that may
 * stream; used by http-routes.ts on the main thread.
 *
 *   POST body with stream: true -> choose -> HttpSink --text of the format--> response -> end | fail
 *
 * The head of the response leaves with the first text, so that what fails before is an error with its status. What the format writes
 * after some silence keeps the connection alive while nothing else is written.
 */
import type { ServerResponse } from 'node:http';
import type { Failure } from '../../actors/messages/errors.js';
import type { StreamFormat, StreamWriter } from '../../rpc/dialects/dialect.js';
import { type CallSink, type EndingSinkMaker, type OpenSink, refusedStream, type SinkEvent, type StreamWish } from '../../rpc/sink.js';
import { wireHighWater } from '../../rpc/wire.js';
import { writeHead } from './http-reply.js';

/** Silence before a sign of life: contract with clients and proxies, which give up after 30 to 60 s. */
const KEEP_ALIVE_MS = 15_000;
/** Looks within that time. */
const LOOKS = 3;

export class StreamDoor implements EndingSinkMaker {
  readonly kind = 'http';
  readonly #response: ServerResponse;
  readonly #format: StreamFormat;
  readonly #keepAliveMs: number;
  #sink: HttpSink | null = null;

  constructor(response: ServerResponse, format: StreamFormat, keepAliveMs = KEEP_ALIVE_MS) {
    this.#response = response;
    this.#format = format;
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
    return (head, onRoom, counted) => {
      this.#sink = new HttpSink(this.#response, {
        type: this.#format.type,
        writer: this.#format.open({ head, usage, counted }),
        onRoom,
        keepAliveMs: this.#keepAliveMs,
      });
      return this.#sink;
    };
  }

  end(answer: unknown): void {
    this.#sink?.end(answer);
  }

  fail(failure: Failure): void {
    this.#sink?.fail(failure);
  }
}

interface SinkOptions {
  readonly type: StreamFormat['type'];
  readonly writer: StreamWriter;
  readonly onRoom: () => void;
  readonly keepAliveMs: number;
}

class HttpSink implements CallSink {
  readonly credit = Number.POSITIVE_INFINITY;
  readonly #response: ServerResponse;
  readonly #options: SinkOptions;
  readonly #keepAlive: NodeJS.Timeout;
  #numEvents = 0;
  #silentLooks = 0;

  constructor(response: ServerResponse, options: SinkOptions) {
    this.#response = response;
    this.#options = options;
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

  event(event: SinkEvent): void {
    this.#numEvents++;
    this.#write(this.#options.writer.event(event));
  }

  watch(): () => boolean {
    const before = this.#response.writableLength;
    return () => this.full && this.#response.writableLength < before;
  }

  close(): void {
    clearInterval(this.#keepAlive);
    this.#response.off('drain', this.#options.onRoom);
  }

  end(answer: unknown): void {
    this.#write(this.#options.writer.end(answer));
    this.#response.end();
  }

  fail(failure: Failure): void {
    this.#write(this.#options.writer.fail(failure));
    this.#response.end();
  }

  #look(): void {
    if (++this.#silentLooks >= LOOKS) this.#write(this.#options.writer.keepAlive());
  }

  #write(text: string): void {
    const response = this.#response;
    if (text === '' || response.destroyed) return;
    this.#silentLooks = 0;
    // Proxies are told not to collect events before they pass them on.
    if (!response.headersSent)
      writeHead(response, {
        status: 200,
        body: null,
        headers: { 'content-type': `${this.#options.type}; charset=utf-8`, 'x-accel-buffering': 'no' },
      });
    response.write(text);
  }
}
