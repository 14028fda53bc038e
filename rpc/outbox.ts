/**
 * Encodes and sends the messages of one connection. Responses go at once. Notifications go at once too, unless the client agreed to
 * batches: then those of one turn of the event loop (one engine step arrives in one turn) become one array in one frame.
 * Whatever was said before a response is sent before it. After `close` nothing is sent.
 *
 * A large response is written in slices, as the socket takes them. Until its end all other messages of the connection wait here, not
 * encoded yet: events hold themselves back (`full`), and the connection reads no more calls when too many replies wait (`crowded`).
 */
import { packView } from '../actors/messages/codec.js';
import type { Encoding } from './decode/decode.js';
import { encodeReply, type Notification, type Response } from './message.js';
import { isLarge, slicesOf } from './slices.js';
import { type Wire, wireHighWater } from './wire.js';

type Reply = Response | readonly Response[];

/** Something to say behind a large response. */
interface Later {
  readonly message: Reply | Notification | readonly Notification[];
  /** The message has left, or never will. */
  readonly gone: () => void;
}

/** Messages behind a large response at which a connection stops calling: each may be as large. */
const maxLater = 32;
const nothing = (): void => {};

export class Outbox {
  readonly #wire: Wire;
  readonly #encoding: Encoding;
  readonly #onRoom: () => void;
  #queue: Notification[] = [];
  #later: Later[] = [];
  /** A large response is on its way. */
  #writing = false;
  #slicesWritten = 0;
  #batching = false;
  #closed = false;

  /** @param onRoom runs when a large response has left and messages that waited for its end may go. */
  constructor(wire: Wire, encoding: Encoding, onRoom: () => void = nothing) {
    this.#wire = wire;
    this.#encoding = encoding;
    this.#onRoom = onRoom;
  }

  /** The client takes arrays of notifications, or no longer does. */
  setBatching(on: boolean): void {
    this.flush();
    this.#batching = on;
  }

  /** True while there is no room for anything that can wait. */
  get full(): boolean {
    return this.#writing || this.#wire.bufferedBytes() > wireHighWater;
  }

  /** True while there is no room for the answers to more calls. */
  get crowded(): boolean {
    return this.#later.length >= maxLater || this.#wire.bufferedBytes() > wireHighWater;
  }

  /** A large response has not left whole. */
  get writing(): boolean {
    return this.#writing;
  }

  /** Slices of large responses that the socket has taken: it grows while the client reads one. */
  get slicesWritten(): number {
    return this.#slicesWritten;
  }

  bufferedBytes(): number {
    return this.#wire.bufferedBytes();
  }

  notify(method: string, params: Notification['params']): void {
    const message: Notification = { jsonrpc: '2.0', method, params };
    if (!this.#batching) {
      this.#say(message, nothing);
      return;
    }
    if (this.#queue.push(message) === 1) queueMicrotask(() => this.flush());
  }

  /** `gone` runs when the reply has left this process's hands, or never will. */
  respond(reply: Reply, gone: () => void = nothing): void {
    this.flush();
    this.#say(reply, gone);
  }

  flush(): void {
    if (this.#queue.length === 0) return;
    const queue = this.#queue;
    this.#queue = [];
    this.#say(queue.length === 1 && queue[0] !== undefined ? queue[0] : queue, nothing);
  }

  close(): void {
    this.#closed = true;
    this.#queue = [];
    const later = this.#later;
    this.#later = [];
    for (const { gone } of later) gone();
  }

  #say(message: Later['message'], gone: () => void): void {
    if (this.#writing && !this.#closed) this.#later.push({ message, gone });
    else this.#send(message, gone);
  }

  #send(message: Later['message'], gone: () => void): void {
    if (this.#closed) gone();
    else if (isReply(message) && isLarge(message)) this.#sendSlices(message, gone);
    else {
      this.#wire.send(isReply(message) ? encodeReply(message, (value) => this.#encode(value)) : this.#encode(message));
      gone();
    }
  }

  #sendSlices(reply: Reply, gone: () => void): void {
    this.#writing = true;
    const slices = slicesOf(reply, this.#encoding, gone);
    const next = () => {
      this.#slicesWritten++;
      return slices.next();
    };
    this.#wire.sendSlices({ next, close: slices.close }, () => this.#sent());
  }

  /** The large response is out: what waited follows, up to the next large one. */
  #sent(): void {
    this.#writing = false;
    while (!this.#writing) {
      const next = this.#later.shift();
      if (next === undefined) break;
      this.#send(next.message, next.gone);
    }
    if (!this.#closed) this.#onRoom();
  }

  #encode(message: unknown): string | Uint8Array {
    return this.#encoding === 'json' ? JSON.stringify(message) : packView(message);
  }
}

function isReply(message: Later['message']): message is Reply {
  return Array.isArray(message) ? !('method' in (message[0] ?? {})) : !('method' in message);
}
