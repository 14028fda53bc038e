/**
 * Two-way links between actors: a lane of shared memory each way, the doorbells of both ends, and a MessagePort.
 *
 * - What is posted in one turn goes out as one msgpack batch: at `flush` (parked loops) or after the current task (event loops). When it
 *   is very much, as when all requests end at once, it goes out in several.
 * - Order is kept. A handler may post, pause or close the link it is called from.
 * - Bounded: `full` tells a sender that the peer is more than `limit` batches behind; senders of streams stop then. Messages that
 *   cannot wait are still taken, up to a hard limit that only a bug can reach.
 * ParkedLink is drained by the thread's loop; EventLink calls its handler from the event loop. The shape is that of xstate's mailbox.
 *
 *   lane:  [handled | pad.. | sent | pad.. | box 0 | box 1 | .. ]        box = [stamp: int32][bytes: int32][batch]
 *
 * Batch n (from 0) lies in box n modulo BOXES with the stamp n + 1. One that is too large, or comes when all boxes are taken, or is one
 * large message as it is, is posted to the port before it is counted as sent; then its box has another stamp. A port alone costs two to
 * three times as much (each message is serialized, posted and delivered as an event), which is most of what a message costs that comes alone.
 */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { Codec } from '../messages/codec.js';
import type { LinkEnd } from '../messages/control.js';
import { createDoorbell, type Doorbell, listen, onceRung, ring } from './doorbell.js';
import { invariant } from './invariant.js';

/** Batches a peer may be behind before `full`. */
const SOFT_LIMIT = 64;
const HARD_LIMIT = 65_536;
/** Messages in one batch. */
const BATCH_MESSAGES = 1024;
/** Batches handled in one drain, so that one busy sender cannot starve the rest of a loop. */
const DRAIN_BATCHES = 256;
/** The same of an event loop, ms: a batch may be a text of megabytes. */
const DRAIN_MS = 10;

/** A prompt of some thousand characters, or the text of a step of a hundred streams. */
const BOX_BYTES = 8192;
const BOXES = 16;
/** Words: two cache lines of counters, then the boxes. */
const HANDLED = 0;
const SENT = 16;
const FIRST_BOX = 32;
const BOX_WORDS = BOX_BYTES / 4;
const STAMP = 0;
const LENGTH = 1;
const BOX_HEADER_WORDS = 2;
const ROOM = BOX_BYTES - 4 * BOX_HEADER_WORDS;
/** Bytes of one way of a link. */
const LANE_BYTES = 4 * FIRST_BOX + BOXES * BOX_BYTES;

/** Makes a link; `bellA` and `bellB` are the doorbells of the threads at either end, null where it has an event loop. */
export function createLink(bellA: Doorbell | null, bellB: Doorbell | null): readonly [LinkEnd, LinkEnd] {
  const { port1, port2 } = new MessageChannel();
  const toB = new Int32Array(new SharedArrayBuffer(LANE_BYTES));
  const toA = new Int32Array(new SharedArrayBuffer(LANE_BYTES));
  const a = bellA ?? createDoorbell();
  const b = bellB ?? createDoorbell();
  return [
    { port: port1, outgoing: toB, incoming: toA, bell: a, peerBell: b },
    { port: port2, outgoing: toA, incoming: toB, bell: b, peerBell: a },
  ];
}

const boxAt = (batch: number): number => FIRST_BOX + (batch & (BOXES - 1)) * BOX_WORDS;

/** The bytes of each box of a lane. */
function roomsOf(lane: Int32Array<SharedArrayBuffer>): readonly Uint8Array[] {
  return Array.from({ length: BOXES }, (_, box) => new Uint8Array(lane.buffer, 4 * (boxAt(box) + BOX_HEADER_WORDS), ROOM));
}

/** What both kinds of link share. */
abstract class Link<In, Out> {
  protected readonly end: LinkEnd;
  protected readonly codec = new Codec();
  protected closed = false;
  readonly #limit: number;
  readonly #outRooms: readonly Uint8Array[];
  readonly #inRooms: readonly Uint8Array[];
  /** A batch is copied here to be unpacked: the packer is not made for shared memory. */
  readonly #batch = Buffer.alloc(ROOM);
  #waiting: Out[] = [];
  #sent = 0;
  #taken = 0;

  constructor(end: LinkEnd, limit: number) {
    this.end = end;
    this.#limit = limit;
    this.#outRooms = roomsOf(end.outgoing);
    this.#inRooms = roomsOf(end.incoming);
  }

  /** Queues a message for the next flush. Ignored after `close`. */
  post(message: Out): void {
    if (this.closed) return;
    const waiting = this.#waiting.push(message);
    if (waiting === 1) this.started();
    else if (waiting === BATCH_MESSAGES) this.flush();
  }

  /**
   * Sends a message with much text, at once and behind all that was posted. It is copied as it is: packing takes ten times as long, and
   * unpacking too, in which a thread serves nobody else.
   */
  postLarge(message: Out): void {
    this.flush();
    if (this.closed) return;
    try {
      this.end.port.postMessage(message);
    } catch (error) {
      this.unsendable(message, error);
      return;
    }
    this.#count();
  }

  /** Sends what was posted, as one batch. */
  flush(): void {
    if (this.#waiting.length === 0 || this.closed) return;
    const batch = this.#waiting;
    this.#waiting = [];
    const bytes = this.#encode(batch);
    if (bytes === null) return;
    const { outgoing, port } = this.end;
    const behind = this.behind();
    const number = this.#sent;
    if (bytes.byteLength <= ROOM && behind < BOXES) {
      const box = boxAt(number);
      this.#outRooms[number & (BOXES - 1)]?.set(bytes);
      outgoing[box + LENGTH] = bytes.byteLength;
      outgoing[box + STAMP] = (number + 1) | 0;
    } else {
      const own = new Uint8Array(bytes);
      port.postMessage(own, [own.buffer]);
    }
    this.#count();
  }

  /** One more batch is in its box, or in the port. */
  #count(): void {
    const { outgoing, peerBell } = this.end;
    invariant(this.behind() < HARD_LIMIT, 'mailbox: the peer does not read');
    this.#sent = (this.#sent + 1) | 0;
    Atomics.store(outgoing, SENT, this.#sent);
    ring(peerBell);
  }

  /** Batches sent and not yet handled by the peer. */
  behind(): number {
    return (this.#sent - Atomics.load(this.end.outgoing, HANDLED)) | 0;
  }

  /** True when a stream to this peer should stop until the peer has caught up. */
  get full(): boolean {
    return this.behind() >= this.#limit;
  }

  /** Wakes the peer for what will soon come to it, from here or from somebody else. */
  rouse(): void {
    if (!this.closed) ring(this.end.peerBell);
  }

  /** Sends nothing more, handles nothing more. */
  close(): void {
    this.closed = true;
    this.end.port.close();
  }

  /** The next batch from the other end, or null. The caller counts it as handled. */
  protected take(): readonly In[] | null {
    const { incoming, port } = this.end;
    const number = this.#taken;
    if (Atomics.load(incoming, SENT) === number) return null;
    this.#taken = (number + 1) | 0;
    const box = boxAt(number);
    if (incoming[box + STAMP] !== this.#taken) {
      const received = receiveMessageOnPort(port);
      invariant(received !== undefined, 'mailbox: a batch is missing');
      const { message } = received;
      return message instanceof Uint8Array ? this.codec.decode(message) : [message as In]; // proof: what `flush` and `postLarge` post
    }
    const room = this.#inRooms[number & (BOXES - 1)];
    const length = incoming[box + LENGTH] ?? 0;
    if (room !== undefined) this.#batch.set(length === ROOM ? room : room.subarray(0, length));
    return this.codec.decode(this.#batch, length);
  }

  protected handled(): void {
    Atomics.add(this.end.incoming, HANDLED, 1);
  }

  /** Called with the first message of a batch. */
  protected abstract started(): void;

  /** Called for a message that cannot be packed (it nests too deep for the packer, for example). */
  protected unsendable(_message: Out, error: unknown): void {
    throw error;
  }

  #encode(batch: readonly Out[]): Uint8Array | null {
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
export class ParkedLink<In, Out> extends Link<In, Out> {
  constructor(end: LinkEnd, limit = SOFT_LIMIT) {
    super(end, limit);
  }

  protected started(): void {} // the loop flushes

  /** Handles what has arrived, in order. True when more may wait: nobody rings again for it, so the loop must not sleep. */
  drain(handle: (message: In) => void): boolean {
    let batches = 0;
    for (; batches < DRAIN_BATCHES && !this.closed; batches++) {
      const batch = this.take();
      if (batch === null) break;
      for (const message of batch) handle(message);
      this.handled();
    }
    return batches === DRAIN_BATCHES;
  }
}

export interface EventLinkOptions<Out> {
  /** Batches the peer may be behind before `full`. */
  readonly limit?: number;
  /** Told of messages that cannot be packed; without it the error surfaces in the event loop. */
  readonly onUnsendable?: (message: Out, error: unknown) => void;
  /** The link does not keep the loop alive. */
  readonly background?: boolean;
}

/** The end of a thread with an event loop. The link keeps that loop alive until `close`, unless it is a background one. */
export class EventLink<In, Out> extends Link<In, Out> {
  readonly #handle: (message: In) => void;
  readonly #onUnsendable: ((message: Out, error: unknown) => void) | null;
  #paused = false;
  #handling = false;
  /** It will look for batches when the bell has rung, or soon. */
  #listening = true;
  /** Batches handled without a turn of the event loop in between, and since when. */
  #inTurn = 0;
  #turnBegan = 0;

  /** `handle` runs once per message, not before the caller is done; what it throws surfaces in the event loop. */
  constructor(end: LinkEnd, handle: (message: In) => void, options: EventLinkOptions<Out> = {}) {
    super(end, options.limit ?? SOFT_LIMIT);
    this.#handle = handle;
    this.#onUnsendable = options.onUnsendable ?? null;
    if (options.background !== true) end.port.ref();
    queueMicrotask(this.#onRing);
  }

  /** Batches are kept, not handled, while paused; the peer sees itself as behind and stops its stream. */
  setPaused(paused: boolean): void {
    this.#paused = paused;
    while (this.#handleNext());
    if (!this.#listening) this.#listen();
  }

  override close(): void {
    super.close();
    ring(this.end.bell); // so that nobody waits for it any more
  }

  protected started(): void {
    queueMicrotask(() => this.flush());
  }

  protected override unsendable(message: Out, error: unknown): void {
    if (this.#onUnsendable === null) throw error;
    this.#onUnsendable(message, error);
  }

  readonly #onRing = (): void => {
    this.#listening = false;
    this.#listen();
  };

  /** Handles a batch, if there is one, and comes back for the next: after what was posted meanwhile has left. */
  #listen(): void {
    if (this.#handling || this.#paused || this.closed) return;
    const heard = listen(this.end.bell);
    let handled = true;
    try {
      handled = this.#handleNext();
    } finally {
      const turns = handled && this.#turnEnds();
      if (!handled) this.#inTurn = 0;
      if (!this.#paused && !this.closed) {
        this.#listening = true;
        if (!handled) onceRung(this.end.bell, heard, this.#onRing);
        else if (turns) setImmediate(this.#onRing);
        else queueMicrotask(this.#onRing);
      }
    }
  }

  /** One more batch was handled: whether the event loop is to turn before the next. */
  #turnEnds(): boolean {
    if (this.#inTurn === 0) this.#turnBegan = performance.now();
    const ends = ++this.#inTurn === DRAIN_BATCHES || performance.now() - this.#turnBegan > DRAIN_MS;
    if (ends) this.#inTurn = 0;
    return ends;
  }

  /** False when there is none, or none may be handled now. */
  #handleNext(): boolean {
    const batch = this.#handling || this.#paused || this.closed ? null : this.take();
    if (batch === null) return false;
    this.#handling = true;
    try {
      this.handled();
      for (const message of batch) {
        if (this.closed) break;
        this.#handle(message);
      }
    } finally {
      this.#handling = false;
    }
    return true;
  }
}
