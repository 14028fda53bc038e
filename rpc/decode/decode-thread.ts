/**
 * A thread that decodes messages, one after the other, as the main thread sees it: it begins with the first message and ends when none has
 * come for a while, which gives its memory back. Made by large-messages.ts.
 */
import { Worker } from 'node:worker_threads';
import type { Message } from '../message.js';
import type { TextLimits } from './cut-texts.js';
import type { Decoded, Encoding } from './decode.js';
import { Moved, type Pieces } from './pieces.js';

/** How a job is to be read: as a message of JSON-RPC, or as the JSON of an HTTP body. */
export type DecodeAs = Encoding | 'value';

/** Main thread -> that thread, about one message. */
export type ToDecode =
  /** Bytes of it, ahead of the job. */
  | { readonly kind: 'part'; readonly id: number; readonly pieces: readonly Uint8Array[] }
  /** There will be no job. */
  | { readonly kind: 'drop'; readonly id: number }
  | DecodeJob;

export interface DecodeJob {
  readonly kind: 'job';
  readonly id: number;
  /** Behind the parts. */
  readonly pieces: readonly Uint8Array[];
  readonly as: DecodeAs;
  /** Of a body: the face that it is for. */
  readonly face: string;
  readonly maxBytes: number;
  readonly limits: TextLimits;
}

export interface DecodeAnswer {
  readonly id: number;
  readonly decoded: Message | Decoded;
}

const IDLE_MS = 5000;
const lost: Message = { kind: 'failed', failure: { kind: 'internal', message: 'The message could not be read' } };

export class DecodeThread {
  readonly #waiting = new Map<number, (decoded: Message | Decoded) => void>();
  /** Messages of which parts have moved and whose jobs have not. */
  readonly #arriving = new Set<number>();
  #thread: Worker | null = null;
  #idle: NodeJS.Timeout | undefined;
  readonly #idleMs: number;
  #nextId = 0;

  /** `idleMs`: after which the thread ends when no message has come. */
  constructor(idleMs = IDLE_MS) {
    this.#idleMs = idleMs;
  }

  /** See Ahead. */
  move(pieces: readonly Uint8Array[], moved: Moved | null): Moved {
    const to = moved ?? new Moved(this.#nextId++);
    for (const { length } of pieces) to.length += length;
    if (moved === null) this.#arriving.add(to.id);
    // When the thread has ended since, so has this message: its bytes are lost.
    if (this.#arriving.has(to.id)) this.#send({ kind: 'part', id: to.id, pieces: pieces.map(movable) });
    return to;
  }

  /** The same. */
  drop(pieces: Pieces): void {
    for (const piece of pieces) {
      if (!(piece instanceof Moved) || !this.#arriving.delete(piece.id)) continue;
      this.#send({ kind: 'drop', id: piece.id });
      this.#rest();
    }
  }

  /** The bytes are gone afterwards. */
  decode(pieces: Pieces, how: Omit<DecodeJob, 'kind' | 'id' | 'pieces'>): Promise<Message | Decoded> {
    const moved = pieces.find((piece) => piece instanceof Moved);
    if (moved !== undefined && !this.#arriving.delete(moved.id)) return Promise.resolve(lost);
    const id = moved?.id ?? this.#nextId++;
    const rest = pieces.filter((piece) => piece instanceof Uint8Array).map(movable);
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#send({ kind: 'job', id, pieces: rest, ...how });
    });
  }

  #send(message: ToDecode): void {
    clearTimeout(this.#idle);
    this.#thread ??= this.#begin();
    const buffers = message.kind === 'drop' ? [] : message.pieces.map(({ buffer }) => buffer as ArrayBuffer); // proof: `movable`
    this.#thread.postMessage(message, buffers);
  }

  #begin(): Worker {
    const thread = new Worker(new URL('./large-message-thread.js', import.meta.url));
    // An open connection keeps the process alive, where it should be; a thread that waits does not.
    thread.unref();
    thread.on('message', ({ id, decoded }: DecodeAnswer) => this.#answer(id, decoded));
    thread.on('error', () => {}); // out of memory, most likely; its end is told by "exit"
    thread.once('exit', () => this.#ended(thread));
    return thread;
  }

  #answer(id: number, decoded: Message | Decoded): void {
    this.#waiting.get(id)?.(decoded);
    this.#waiting.delete(id);
    this.#rest();
  }

  #rest(): void {
    if (this.#waiting.size > 0 || this.#arriving.size > 0) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#end(), this.#idleMs);
    this.#idle.unref();
  }

  /** A message that comes before the thread has gone begins another one: this one takes nothing any more. */
  #end(): void {
    const thread = this.#thread;
    this.#thread = null;
    void thread?.terminate();
  }

  /** What it was to decode gets its one answer. */
  #ended(thread: Worker): void {
    if (this.#thread !== thread) return;
    this.#thread = null;
    this.#arriving.clear();
    for (const id of [...this.#waiting.keys()]) this.#answer(id, lost);
  }
}

/** The same bytes in memory of their own: what shares its memory with other bytes cannot move. */
function movable(piece: Uint8Array): Uint8Array {
  const { buffer, byteLength } = piece;
  return buffer instanceof ArrayBuffer && byteLength > buffer.byteLength / 2 ? piece : Uint8Array.prototype.slice.call(piece);
}
