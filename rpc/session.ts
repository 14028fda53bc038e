/**
 * The state of one connection: what was agreed in `initialize`, its unanswered calls, live streams and subscriptions.
 * Made by RpcConnection; methods reach it through their context.
 */
import { InferdError, invalidParams } from '../actors/messages/errors.js';
import { CallTable } from './calls.js';
import type { AnswerHead } from './client/chunk.js';
import { type Id, idKey } from './message.js';
import type { Outbox } from './outbox.js';
import { ProgressSink } from './progress-sink.js';
import { type CallSink, type OpenSink, refusedStream, type SinkMaker, type StreamWish } from './sink.js';
import { Subscriptions } from './subscriptions.js';

/** Longest progress token: it is repeated in every event. */
const maxTokenLength = 256;

export class Session implements SinkMaker {
  readonly kind = 'progress';
  readonly out: Outbox;
  readonly calls: CallTable;
  readonly subscriptions: Subscriptions;
  /** The client wants id, created and model of the answer in the first delta event. */
  deltaHead = false;
  /** New work is refused. */
  draining = false;
  readonly #streams = new Map<string, ProgressSink>();

  constructor(out: Outbox, options: { readonly maxRequests: number }) {
    this.out = out;
    this.calls = new CallTable(options.maxRequests);
    this.subscriptions = new Subscriptions(out);
  }

  choose({ stream }: StreamWish, id: Id | undefined): OpenSink {
    if (stream !== true) return (head, onRoom) => this.#openStream(stream.token, stream.credit ?? null, head, onRoom);
    if (id === undefined || id === null) throw refusedStream('stream: true needs a request id that is a string or a number');
    return (head, onRoom) => this.#openStream(id, null, head, onRoom);
  }

  /** @throws InferdError when the token cannot be used. */
  #openStream(token: string | number, credit: number | null, head: AnswerHead, onRoom: () => void): CallSink {
    if (typeof token === 'string' && token.length > maxTokenLength) {
      throw invalidParams([{ path: 'stream.token', message: `must have at most ${maxTokenLength} characters` }]);
    }
    const key = idKey(token);
    if (this.#streams.has(key)) throw invalidParams([{ path: 'stream.token', message: 'is in use by another stream of this connection' }]);
    const onClose = (): void => void this.#streams.delete(key); // the token is free again
    const sink = new ProgressSink(this.out, { token, credit, head: this.deltaHead ? head : null, onRoom, onClose });
    this.#streams.set(key, sink);
    return sink;
  }

  /** Unknown and ended streams are ignored: a grant may cross the response. */
  grant(token: string | number, n: number): void {
    this.#streams.get(idKey(token))?.grant(n);
  }

  /** The socket has room again. */
  pump(): void {
    for (const stream of this.#streams.values()) stream.room();
  }

  /** The connection is gone: every call is cancelled, nothing is sent. */
  close(): void {
    this.out.close();
    this.subscriptions.close();
    this.calls.cancelAll();
  }
}

/** The session of a call that needs one. @throws InferdError for calls over HTTP. */
export function needSession(session: Session | null): Session {
  if (session === null) throw new InferdError('unsupported', 'This method needs a WebSocket connection');
  return session;
}
