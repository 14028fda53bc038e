/**
 * The receiving end of a streaming call: $/progress events in, OpenAI-shaped chunks out, through an async iterator.
 *
 * A slow consumer slows the daemon: it may send `window` tokens ahead of what was taken, and each half window taken is granted anew.
 * So at most a window of chunks waits here. The chunk with a finish_reason is held back until the response brings the usage for it.
 * Leaving the loop early cancels the call.
 */
import { type AnswerHead, type Chunk, chunkOf } from './chunk.js';
import { ProtocolError } from './errors.js';
import type { ProgressEvent } from './types.js';

/** Tokens the daemon may be ahead of the consumer. */
export const creditWindow = 256;

interface Event {
  readonly seq: number;
  readonly kind: string;
  readonly choices?: readonly { readonly finish_reason?: unknown }[];
  readonly tokens?: number;
  readonly id?: string;
  readonly created?: number;
  readonly model?: string;
}

export interface ChunkStreamOptions {
  readonly object: string;
  readonly grant: (n: number) => void;
  readonly cancel: () => void;
  readonly onProgress: ((event: ProgressEvent) => void) | undefined;
}

/** `C`: the chunk type of the method called; the daemon's schema vouches for it. */
export class ChunkStream<C> implements AsyncIterableIterator<C> {
  readonly #options: ChunkStreamOptions;
  #head: AnswerHead;
  #nextSeq = 0;
  #ready: { readonly chunk: Chunk; readonly tokens: number }[] = [];
  #held: { readonly chunk: Chunk; readonly tokens: number } | null = null;
  #taken = 0;
  #end: { readonly error: unknown } | 'done' | null = null;
  #waiting: (() => void)[] = [];

  constructor(options: ChunkStreamOptions) {
    this.#options = options;
    this.#head = { id: '', object: options.object, created: 0, model: '' };
  }

  /** One $/progress of this stream. */
  accept(event: Event): void {
    if (this.#end !== null) return;
    if (event.seq !== this.#nextSeq) {
      this.#options.cancel();
      this.fail(new ProtocolError(`An event of the stream is missing: expected number ${this.#nextSeq}, got ${event.seq}`));
      return;
    }
    this.#nextSeq++;
    if (event.kind !== 'delta' || event.choices === undefined) {
      this.#options.onProgress?.(event as unknown as ProgressEvent); // proof: the other kinds of the protocol
      return;
    }
    if (event.id !== undefined) this.#name(event.id, event.created ?? 0, event.model ?? '');
    this.#release(null);
    const item = { chunk: chunkOf(this.#head, event.choices), tokens: event.tokens ?? 0 };
    if (event.choices.some((c) => c.finish_reason !== null && c.finish_reason !== undefined)) this.#held = item;
    else this.#ready.push(item);
    this.#wake();
  }

  /** The response came. */
  finish(result: { readonly id: string; readonly created: number; readonly model: string; readonly usage: unknown }): void {
    if (this.#end !== null) return;
    const { id, created, model, usage } = result;
    this.#name(id, created, model);
    this.#held ??= { chunk: chunkOf(this.#head, []), tokens: 0 };
    this.#release(usage);
    this.#end = 'done';
    this.#wake();
  }

  /** The call failed; chunks that came before are still given. */
  fail(error: unknown): void {
    if (this.#end !== null) return;
    this.#release(null);
    this.#end = { error };
    this.#wake();
  }

  /** The call was aborted here: nothing more is given. */
  abort(reason: unknown): void {
    if (this.#end !== null) return;
    this.#ready = [];
    this.#held = null;
    this.fail(reason);
  }

  async next(): Promise<IteratorResult<C>> {
    for (;;) {
      const item = this.#ready.shift();
      if (item !== undefined) {
        this.#count(item.tokens);
        return { done: false, value: item.chunk as C }; // proof: see class comment
      }
      if (this.#end === 'done') return { done: true, value: undefined };
      if (this.#end !== null) {
        const { error } = this.#end;
        this.#end = 'done';
        throw error;
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** The consumer leaves early. */
  return(): Promise<IteratorResult<C>> {
    if (this.#end === null) this.#options.cancel();
    this.#end = 'done';
    this.#ready = [];
    this.#wake();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #name(id: string, created: number, model: string): void {
    this.#head = { id, object: this.#options.object, created, model };
  }

  #release(usage: unknown): void {
    if (this.#held === null) return;
    this.#ready.push(usage === null ? this.#held : { ...this.#held, chunk: { ...this.#held.chunk, usage } });
    this.#held = null;
  }

  #count(tokens: number): void {
    this.#taken += tokens;
    if (this.#taken < creditWindow / 2 || this.#end !== null) return;
    this.#options.grant(this.#taken);
    this.#taken = 0;
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
