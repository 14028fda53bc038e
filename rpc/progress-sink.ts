/**
 * The WebSocket's way to stream: each event is a $/progress notification with the client's token and a number that counts from 0 without
 * gaps. The client may count tokens as well (credit). Made by Session, which hands on grants and tells when the socket has room again.
 */
import type { AnswerHead } from './client/chunk.js';
import type { Outbox } from './outbox.js';
import type { CallSink, SinkEvent } from './sink.js';

export interface ProgressOptions {
  readonly token: string | number;
  /** `null`: as many tokens as the socket takes. */
  readonly credit: number | null;
  /** What the first delta event tells of the answer, if the client wants that. */
  readonly head: AnswerHead | null;
  readonly onRoom: () => void;
  readonly onClose: () => void;
}

const maxCredit = 2 ** 31;

export class ProgressSink implements CallSink {
  readonly #out: Outbox;
  readonly #options: ProgressOptions;
  readonly #maxCredit: number;
  #credit: number;
  #seq = 0;
  #head: AnswerHead | null;

  constructor(out: Outbox, options: ProgressOptions) {
    this.#out = out;
    this.#options = options;
    this.#maxCredit = options.credit === null ? Number.POSITIVE_INFINITY : maxCredit;
    this.#credit = options.credit ?? Number.POSITIVE_INFINITY;
    this.#head = options.head;
  }

  get full(): boolean {
    return this.#out.full;
  }

  get credit(): number {
    return this.#credit;
  }

  get numEvents(): number {
    return this.#seq;
  }

  event(event: SinkEvent): void {
    if (event.kind === 'delta') this.#delta(event);
    else this.#out.notify('$/progress', { token: this.#options.token, seq: this.#seq++, ...event });
  }

  /** A socket whose buffer shrinks, or takes slices of a large response, is read. */
  watch(): () => boolean {
    const buffered = this.#out.bufferedBytes();
    const written = this.#out.slicesWritten;
    return () => (this.#out.full && this.#out.bufferedBytes() < buffered) || this.#out.slicesWritten !== written;
  }

  close(): void {
    this.#options.onClose();
  }

  /** The client grants `n` more tokens. Without agreed credit there is nothing to count. */
  grant(n: number): void {
    this.#credit = Math.min(this.#credit + n, this.#maxCredit);
    this.#options.onRoom();
  }

  /** The socket has room again. */
  room(): void {
    this.#options.onRoom();
  }

  #delta({ kind, choices, tokens }: SinkEvent & { readonly kind: 'delta' }): void {
    const head = this.#head;
    this.#head = null;
    this.#credit -= tokens;
    const { token, credit } = this.#options;
    const seq = this.#seq++;
    if (head === null && credit === null) {
      // What almost every event is: spreading nothing into it would take as long as all else here.
      this.#out.notify('$/progress', { token, seq, kind, choices });
      return;
    }
    const named = head === null ? null : { id: head.id, created: head.created, model: head.model };
    const counted = credit === null ? null : { tokens };
    this.#out.notify('$/progress', { token, seq, kind, ...named, choices, ...counted });
  }
}
