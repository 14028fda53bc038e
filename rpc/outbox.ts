/**
 * Encodes and sends the messages of one connection. Responses go at once. Notifications go at once too, unless the client agreed to
 * batches: then those of one turn of the event loop (one engine step arrives in one turn) become one array in one frame.
 * Whatever was said before a response is sent before it. After `close` nothing is sent.
 */
import { packMessage } from '../actors/messages/codec.js';
import type { Encoding } from './decode.js';
import { encodeReply, type Notification, type Response } from './message.js';
import { type Wire, wireHighWater } from './wire.js';

export class Outbox {
  readonly #wire: Wire;
  readonly #encoding: Encoding;
  #queue: Notification[] = [];
  #batching = false;
  #closed = false;

  constructor(wire: Wire, encoding: Encoding) {
    this.#wire = wire;
    this.#encoding = encoding;
  }

  /** The client takes arrays of notifications, or no longer does. */
  setBatching(on: boolean): void {
    this.flush();
    this.#batching = on;
  }

  /** True while the socket's buffer is too full for anything that can wait. */
  get full(): boolean {
    return this.#wire.bufferedBytes() > wireHighWater;
  }

  bufferedBytes(): number {
    return this.#wire.bufferedBytes();
  }

  notify(method: string, params: Notification['params']): void {
    const message: Notification = { jsonrpc: '2.0', method, params };
    if (!this.#batching) {
      this.#send(message);
      return;
    }
    if (this.#queue.push(message) === 1) queueMicrotask(() => this.flush());
  }

  respond(reply: Response | readonly Response[]): void {
    this.flush();
    if (!this.#closed) this.#wire.send(encodeReply(reply, (value) => this.#encode(value)));
  }

  flush(): void {
    if (this.#queue.length === 0) return;
    const queue = this.#queue;
    this.#queue = [];
    this.#send(queue.length === 1 && queue[0] !== undefined ? queue[0] : queue);
  }

  close(): void {
    this.#closed = true;
    this.#queue = [];
  }

  #encode(message: unknown): string | Uint8Array {
    return this.#encoding === 'json' ? JSON.stringify(message) : packMessage(message);
  }

  #send(message: Notification | readonly Notification[]): void {
    if (!this.#closed) this.#wire.send(this.#encode(message));
  }
}
