/**
 * The $/progress notifications of one streaming call: numbers them, and slows the engine down when the client is slow.
 *
 * Three stages, each only when the one before is not enough: while credit (tokens the client has granted) or room in the socket's buffer
 * lasts, pieces go out as they come; else they wait here and leave merged, one notification for many; and when about 256 tokens wait,
 * `setPaused` stops the sequences in the scheduler. A client that takes nothing for `timeoutMs` loses the call (`onStuck`). Memory is
 * bounded by those 256 tokens plus what the steps in flight still produce.
 * Owned by one generating call; lives on the main thread.
 */
import type { LogprobSource } from './generation/logprob-records.js';
import type { Outbox } from './outbox.js';

export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string /** JSON text. */; readonly arguments: string };
}

/** What one sequence gained, in order. */
export interface Piece {
  /** Index of the choice. */
  readonly index: number;
  readonly text: string;
  /** Credit that sending it costs. */
  readonly tokens: number;
  readonly tokenIds: readonly number[];
  /** One entry per token, of an echoed prompt too; empty when not asked for. */
  readonly logprobs: readonly LogprobSource[];
  /** Reason, with the last piece of a choice. */
  readonly finish: string | null;
  readonly stopReason?: string | number;
  readonly toolCall?: ToolCall;
}

export interface StreamOptions {
  readonly token: string | number;
  /** `null`: as many tokens as the socket takes. */
  readonly credit: number | null;
  readonly timeoutMs: number;
  /** Pieces -> `choices` of a delta event. */
  readonly shape: (pieces: readonly Piece[]) => readonly object[];
  /** Added to the first delta event. */
  readonly head: Readonly<Record<string, unknown>> | null;
  readonly setPaused: (paused: boolean) => void;
  readonly onStuck: () => void;
}

/** Waiting tokens at which the sequences are paused, and at which they go on. */
const pauseAt = 256;
const resumeAt = 64;
const maxCredit = 2 ** 31;
/** What an event may hold that has several pieces, tokens with log-probabilities and characters: it is written in a few milliseconds. */
const maxEventEntries = 128;
const maxEventChars = 2 ** 16;

/** One piece per choice, holding what all of its pieces held. */
export function mergePieces(pieces: readonly Piece[]): readonly Piece[] {
  const byIndex = new Map<number, Piece[]>();
  for (const piece of pieces) {
    const list = byIndex.get(piece.index);
    if (list === undefined) byIndex.set(piece.index, [piece]);
    else list.push(piece);
  }
  return [...byIndex.values()].map((list) => {
    const last = list.at(-1);
    if (last === undefined || list.length === 1) return list[0] as Piece; // proof: lists are made with one element
    return {
      ...last,
      text: list.map((p) => p.text).join(''),
      tokens: list.reduce((sum, p) => sum + p.tokens, 0),
      tokenIds: list.flatMap((p) => p.tokenIds),
      logprobs: list.flatMap((p) => p.logprobs),
    };
  });
}

export class ProgressStream {
  readonly #out: Outbox;
  readonly #options: StreamOptions;
  #credit: number;
  #seq = 0;
  #waiting: Piece[] = [];
  #waitingTokens = 0;
  #paused = false;
  #closed = false;
  #headSent = false;
  #timer: NodeJS.Timeout | null = null;
  #bufferedAtTimer = 0;
  #writtenAtTimer = 0;
  /** The next event leaves in another turn of the event loop. */
  #next: NodeJS.Immediate | null = null;
  #drained: (() => void) | null = null;

  constructor(out: Outbox, options: StreamOptions) {
    this.#out = out;
    this.#options = options;
    this.#credit = options.credit ?? Number.POSITIVE_INFINITY;
  }

  /** Number of the last event sent, -1 before the first. */
  get lastSeq(): number {
    return this.#seq - 1;
  }

  /** queued or prefill: dropped when the socket is full, because the next one says it better. */
  notice(event: Readonly<Record<string, unknown>>): void {
    if (!this.#closed && !this.#out.full) this.#send(event);
  }

  /** Takes pieces of one step; sends what may be sent. */
  push(pieces: readonly Piece[]): void {
    if (this.#closed) return;
    for (const piece of pieces) {
      this.#waiting.push(piece);
      this.#waitingTokens += piece.tokens;
    }
    this.pump();
  }

  /** The client grants `n` more tokens. Without agreed credit there is nothing to count. */
  grant(n: number): void {
    this.#credit = Math.min(this.#credit + n, this.#options.credit === null ? Number.POSITIVE_INFINITY : maxCredit);
    this.pump();
  }

  /** Sends what credit and buffer allow; called on grants, on new pieces and when the socket has drained. */
  pump(): void {
    if (this.#closed) return;
    if (this.#waiting.length > 0 && !this.#out.full && this.#next === null) this.#sendWaiting();
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
    this.#closed = true;
    this.#waiting = [];
    this.#stopTimer();
    if (this.#next !== null) clearImmediate(this.#next);
  }

  #sendWaiting(): void {
    let tokens = 0;
    let count = 0;
    let entries = 0;
    let chars = 0;
    for (const piece of this.#waiting) {
      // A piece of several tokens may overdraw what is left, so that any credit above zero makes progress.
      if (piece.tokens > 0 && this.#credit - tokens <= 0) break;
      for (const { size } of piece.logprobs) entries += size;
      chars += piece.text.length;
      if (count > 0 && (entries > maxEventEntries || chars > maxEventChars)) {
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
    const pieces = this.#waiting.splice(0, count);
    this.#waitingTokens -= tokens;
    this.#credit -= tokens;
    const head = this.#headSent ? null : this.#options.head;
    this.#headSent = true;
    this.#send({
      kind: 'delta',
      ...head,
      choices: this.#options.shape(pieces),
      ...(this.#options.credit === null ? {} : { tokens }),
    });
    this.#stopTimer();
  }

  #send(event: Readonly<Record<string, unknown>>): void {
    this.#out.notify('$/progress', { token: this.#options.token, seq: this.#seq++, ...event });
  }

  #steer(): void {
    const paused = this.#paused ? this.#waitingTokens > resumeAt : this.#waitingTokens >= pauseAt;
    if (paused === this.#paused) return;
    this.#paused = paused;
    this.#options.setPaused(paused);
  }

  #startTimer(): void {
    if (this.#timer !== null) return;
    this.#bufferedAtTimer = this.#out.bufferedBytes();
    this.#writtenAtTimer = this.#out.slicesWritten;
    this.#timer = setTimeout(() => this.#onTimer(), this.#options.timeoutMs);
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #onTimer(): void {
    this.#timer = null;
    const before = this.#seq;
    const shrunk = this.#out.full && this.#out.bufferedBytes() < this.#bufferedAtTimer;
    const taking = shrunk || this.#out.slicesWritten !== this.#writtenAtTimer;
    this.pump();
    if (this.#closed || this.#waiting.length === 0 || this.#seq !== before || taking) return;
    this.#options.onStuck();
  }
}
