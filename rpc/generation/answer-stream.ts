/**
 * Between a streaming call and its sink: slows the engine down when the reader is slow.
 *
 * Three stages, each only when the one before is not enough: while the sink has credit (tokens the reader has granted) and room, pieces
 * go out as they come; else they wait here and leave merged, one event for many; and when about 256 tokens wait, `setPaused` stops the
 * sequences in the scheduler. A reader that takes nothing for `timeoutMs` loses the call (`onStuck`). Memory is bounded by those 256
 * tokens plus what the steps in flight still produce.
 * Owned by one generating call; lives on the main thread.
 */
import type { AnswerHead } from '../client/chunk.js';
import type { Usage } from '../schemas/common.js';
import type { CallSink, OpenSink, SinkEvent } from '../sink.js';
import { type Piece, pieceChars } from './piece.js';

export interface StreamOptions {
  readonly open: OpenSink;
  readonly head: AnswerHead;
  readonly timeoutMs: number;
  /** Tokens and times of the call until now. */
  readonly counted: () => Usage;
  /** Pieces -> `choices` of a delta event. */
  readonly shape: (pieces: readonly Piece[]) => readonly object[];
  /** Pieces -> what a delta event has beside its `choices`. */
  readonly chunkFields?: (pieces: readonly Piece[]) => object;
  readonly setPaused: (paused: boolean) => void;
  readonly onStuck: () => void;
}

/** Waiting tokens at which the sequences are paused, and at which they go on. */
const pauseAt = 256;
const resumeAt = 64;
/** What an event may hold that has several pieces, tokens with log-probabilities and characters: it is written in a few milliseconds. */
const maxEventEntries = 128;
const maxEventChars = 2 ** 16;

export class AnswerStream {
  readonly #sink: CallSink;
  readonly #options: StreamOptions;
  #waiting: Piece[] = [];
  #waitingTokens = 0;
  #paused = false;
  #closed = false;
  #timer: NodeJS.Timeout | null = null;
  /** Since the timer was started. */
  #taking: () => boolean = () => true;
  /** The next event leaves in another turn of the event loop. */
  #next: NodeJS.Immediate | null = null;
  #drained: (() => void) | null = null;

  /** @throws InferdError when the sink cannot be opened */
  constructor(options: StreamOptions) {
    this.#options = options;
    this.#sink = options.open(options.head, () => this.pump(), options.counted);
  }

  get numEvents(): number {
    return this.#sink.numEvents;
  }

  /** queued or prefill: dropped when the sink is full, because the next one says it better. */
  notice(event: SinkEvent): void {
    if (!this.#closed && !this.#sink.full) this.#sink.event(event);
  }

  /** Takes the pieces of one step, and the list itself; sends what may be sent. */
  push(pieces: Piece[]): void {
    if (this.#closed) return;
    for (const { tokens } of pieces) this.#waitingTokens += tokens;
    if (this.#waiting.length === 0) this.#waiting = pieces;
    else for (const piece of pieces) this.#waiting.push(piece);
    this.pump();
  }

  /** Sends what credit and room allow; called on new pieces and by the sink. */
  pump(): void {
    if (this.#closed) return;
    if (this.#waiting.length > 0 && !this.#sink.full && this.#next === null) this.#sendWaiting();
    if (this.#waiting.length === 0) {
      this.#stopTimer();
      this.#drained?.();
      this.#drained = null;
    } else this.#startTimer();
    this.#steer();
  }

  /** Resolves when everything that was pushed has been sent. Never, when the stream is closed before. */
  drained(): Promise<void> {
    if (this.#waiting.length === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#drained = resolve;
    });
  }

  /** Nothing is sent any more. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#waiting = [];
    this.#stopTimer();
    if (this.#next !== null) clearImmediate(this.#next);
    this.#sink.close();
  }

  #sendWaiting(): void {
    let tokens = 0;
    let count = 0;
    let entries = 0;
    let chars = 0;
    const { credit } = this.#sink;
    for (const piece of this.#waiting) {
      // A piece of several tokens may overdraw what is left, so that any credit above zero makes progress.
      if (piece.tokens > 0 && credit - tokens <= 0) break;
      for (const { size } of piece.logprobs) entries += size;
      for (const { size } of piece.prompt?.logprobs ?? []) entries += size;
      chars += pieceChars(piece);
      if (count > 0 && (piece.apart || entries > maxEventEntries || chars > maxEventChars)) {
        this.#next = setImmediate(() => {
          this.#next = null;
          this.pump();
        });
        break;
      }
      tokens += piece.tokens;
      count++;
    }
    if (count === 0) return;
    let pieces = this.#waiting;
    if (count === pieces.length) this.#waiting = [];
    else pieces = pieces.splice(0, count);
    this.#waitingTokens -= tokens;
    const { shape, chunkFields } = this.#options;
    const choices = shape(pieces);
    if (chunkFields === undefined) this.#sink.event({ kind: 'delta', choices, tokens });
    else this.#sink.event({ kind: 'delta', choices, tokens, fields: chunkFields(pieces) });
    this.#stopTimer();
  }

  #steer(): void {
    const paused = this.#paused ? this.#waitingTokens > resumeAt : this.#waitingTokens >= pauseAt;
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#options.setPaused(paused);
  }

  #startTimer(): void {
    if (this.#timer !== null) return;
    this.#taking = this.#sink.watch();
    this.#timer = setTimeout(() => this.#onTimer(), this.#options.timeoutMs);
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #onTimer(): void {
    this.#timer = null;
    const before = this.#sink.numEvents;
    const taking = this.#taking();
    this.pump();
    if (this.#closed || this.#waiting.length === 0 || this.#sink.numEvents !== before || taking) return;
    this.#options.onStuck();
  }
}
