/**
 * Two-way links between actors: a MessagePort, a count of handled batches in shared memory each way, and the doorbell of a parked peer.
 *
 * - What is posted in one turn goes out as one msgpack batch: at `flush` (parked loops) or after the current task (event loops).
 * - Order is kept. A handler may post, pause or close the link it is called from.
 * - Bounded: `full` tells a sender that the peer is more than `limit` batches behind; senders of streams stop then. Messages that
 *   cannot wait are still taken, up to a hard limit that only a bug can reach.
 * ParkedLink is drained by the thread's loop; EventLink calls its handler from the event loop. The shape is that of xstate's mailbox.
 */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { Codec } from '../messages/codec.js';
import type { LinkEnd } from '../messages/control.js';
import { type Doorbell, ring } from './doorbell.js';
import { invariant } from './invariant.js';

/** Batches a peer may be behind before `full`. */
const SOFT_LIMIT = 64;
const HARD_LIMIT = 65_536;
/** Larger batches are transferred; below this the copy of a clone is cheaper than detaching the buffer (test/bench/actors.ts). */
const TRANSFER_BYTES = 2048;
/** Batches handled in one drain, so that one busy sender cannot starve the rest of a loop. */
const DRAIN_BATCHES = 256;

const HANDLED = 0;

/** Makes a link; `bellA` and `bellB` are the doorbells of the threads at either end, null where it has an event loop. */
export function createLink(bellA: Doorbell | null, bellB: Doorbell | null): readonly [LinkEnd, LinkEnd] {
  const { port1, port2 } = new MessageChannel();
  const toB = new Int32Array(new SharedArrayBuffer(64));
  const toA = new Int32Array(new SharedArrayBuffer(64));
  return [
    { port: port1, outgoing: toB, incoming: toA, peerBell: bellB },
    { port: port2, outgoing: toA, incoming: toB, peerBell: bellA },
  ];
}

/** The sending half of both kinds of link. */
abstract class LinkSender<Out> {
  protected readonly end: LinkEnd;
  protected readonly codec = new Codec();
  protected closed = false;
  readonly #limit: number;
  #waiting: Out[] = [];
  #sent = 0;

  constructor(end: LinkEnd, limit: number) {
    this.end = end;
    this.#limit = limit;
  }

  /** Queues a message for the next flush. Ignored after `close`. */
  post(message: Out): void {
    if (this.closed) return;
    invariant(this.#waiting.length < HARD_LIMIT, 'mailbox: too many messages in one turn');
    if (this.#waiting.push(message) === 1) this.started();
  }

  /** Sends what was posted, as one batch. */
  flush(): void {
    if (this.#waiting.length === 0 || this.closed) return;
    const batch = this.#waiting;
    this.#waiting = [];
    const bytes = this.#encode(batch);
    if (bytes === null) return;
    this.#sent = (this.#sent + 1) | 0;
    invariant(this.behind() < HARD_LIMIT, 'mailbox: the peer does not read');
    if (bytes.byteLength > TRANSFER_BYTES) this.end.port.postMessage(bytes, [bytes.buffer]);
    else this.end.port.postMessage(bytes);
    if (this.end.peerBell !== null) ring(this.end.peerBell);
  }

  /** Batches sent and not yet handled by the peer. */
  behind(): number {
    return (this.#sent - Atomics.load(this.end.outgoing, HANDLED)) | 0;
  }

  /** True when a stream to this peer should stop until the peer has caught up. */
  get full(): boolean {
    return this.behind() >= this.#limit;
  }

  /** Sends nothing more, handles nothing more. */
  close(): void {
    this.closed = true;
    this.end.port.close();
  }

  /** Called with the first message of a batch. */
  protected abstract started(): void;

  /** Called for a message that cannot be packed (it nests too deep for the packer, for example). */
  protected unsendable(_message: Out, error: unknown): void {
    throw error;
  }

  #encode(batch: readonly Out[]): Uint8Array<ArrayBuffer> | null {
    try {
      return this.codec.encode(batch);
    } catch {
      const good = batch.filter((message) => this.#packable(message));
      return good.length === 0 ? null : this.codec.encode(good);
    }
  }

  #packable(message: Out): boolean {
    try {
      this.codec.encode([message]);
      return true;
    } catch (error) {
      this.unsendable(message, error);
      return false;
    }
  }
}

/** The end of a thread that runs its own loop. */
export class ParkedLink<In, Out> extends LinkSender<Out> {
  constructor(end: LinkEnd, limit = SOFT_LIMIT) {
    super(end, limit);
  }

  protected started(): void {} // the loop flushes

  /** Handles what has arrived, in order. True when more may wait: nobody rings again for it, so the loop must not sleep. */
  drain(handle: (message: In) => void): boolean {
    let batches = 0;
    for (; batches < DRAIN_BATCHES && !this.closed; batches++) {
      const received = receiveMessageOnPort(this.end.port);
      if (received === undefined) break;
      for (const message of this.codec.decode<In>(received.message as Uint8Array)) handle(message);
      Atomics.add(this.end.incoming, HANDLED, 1);
    }
    return batches === DRAIN_BATCHES;
  }
}

export interface EventLinkOptions<Out> {
  /** Batches the peer may be behind before `full`. */
  readonly limit?: number;
  /** Told of messages that cannot be packed; without it the error surfaces in the event loop. */
  readonly onUnsendable?: (message: Out, error: unknown) => void;
}

/** The end of a thread with an event loop. The port keeps that loop alive until `close`. */
export class EventLink<In, Out> extends LinkSender<Out> {
  readonly #handle: (message: In) => void;
  readonly #backlog: Uint8Array[] = [];
  readonly #onUnsendable: ((message: Out, error: unknown) => void) | null;
  #paused = false;
  #draining = false;

  /** `handle` runs once per message; what it throws surfaces in the event loop. */
  constructor(end: LinkEnd, handle: (message: In) => void, options: EventLinkOptions<Out> = {}) {
    super(end, options.limit ?? SOFT_LIMIT);
    this.#handle = handle;
    this.#onUnsendable = options.onUnsendable ?? null;
    end.port.on('message', (bytes: Uint8Array) => {
      this.#backlog.push(bytes);
      this.#drain();
    });
  }

  /** Batches are kept, not handled, while paused; the peer sees itself as behind and stops its stream. */
  setPaused(paused: boolean): void {
    this.#paused = paused;
    this.#drain();
  }

  protected started(): void {
    queueMicrotask(() => this.flush());
  }

  protected override unsendable(message: Out, error: unknown): void {
    if (this.#onUnsendable === null) throw error;
    this.#onUnsendable(message, error);
  }

  #drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    try {
      while (!this.#paused && !this.closed) {
        const bytes = this.#backlog.shift();
        if (bytes === undefined) break;
        Atomics.add(this.end.incoming, HANDLED, 1);
        for (const message of this.codec.decode<In>(bytes)) {
          if (this.closed) break;
          this.#handle(message);
        }
      }
    } finally {
      this.#draining = false;
    }
  }
}
