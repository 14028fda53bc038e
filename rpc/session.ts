/**
 * The state of one connection: what was agreed in `initialize`, its unanswered calls, live streams and subscriptions.
 * Made by RpcConnection; methods reach it through their context.
 */
import { InferdError } from '../actors/messages/errors.js';
import { CallTable } from './calls.js';
import { idKey } from './message.js';
import type { Outbox } from './outbox.js';
import { invalidParams } from './params.js';
import { ProgressStream, type StreamOptions } from './progress-stream.js';
import { Subscriptions } from './subscriptions.js';

/** Longest progress token: it is repeated in every event. */
const maxTokenLength = 256;

export class Session {
  readonly out: Outbox;
  readonly admin: boolean;
  readonly calls: CallTable;
  readonly subscriptions: Subscriptions;
  /** The client wants id, created and model of the answer in the first delta event. */
  deltaHead = false;
  /** New work is refused. */
  draining = false;
  readonly #streams = new Map<string, ProgressStream>();

  constructor(out: Outbox, options: { readonly admin: boolean; readonly maxRequests: number }) {
    this.out = out;
    this.admin = options.admin;
    this.calls = new CallTable(options.maxRequests);
    this.subscriptions = new Subscriptions(out);
  }

  /** @throws InferdError when the token cannot be used. */
  openStream(options: StreamOptions): ProgressStream {
    if (typeof options.token === 'string' && options.token.length > maxTokenLength) {
      throw invalidParams([{ path: 'stream.token', message: `must have at most ${maxTokenLength} characters` }]);
    }
    const key = idKey(options.token);
    if (this.#streams.has(key)) throw invalidParams([{ path: 'stream.token', message: 'is in use by another stream of this connection' }]);
    const stream = new ProgressStream(this.out, options);
    this.#streams.set(key, stream);
    return stream;
  }

  /** Ends the stream of `token`: nothing is sent on it any more, and the token is free. */
  closeStream(token: string | number): void {
    this.#streams.get(idKey(token))?.close();
    this.#streams.delete(idKey(token));
  }

  /** Unknown and ended streams are ignored: a grant may cross the response. */
  grant(token: string | number, n: number): void {
    this.#streams.get(idKey(token))?.grant(n);
  }

  /** The socket has room again. */
  pump(): void {
    for (const stream of this.#streams.values()) stream.pump();
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
