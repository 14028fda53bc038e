/**
 * One WebSocket connection as JSON-RPC: frames in, frames out. Made by daemon/front/websocket.ts for each socket, on the main thread.
 * Invariants: every request gets exactly one response unless the socket closed before; nothing is sent after `close`; no input makes
 * any method of this class throw.
 */
import { decodeMessage, type Encoding } from './decode.js';
import { Outbox } from './outbox.js';
import type { Scopes } from './scope.js';
import type { Caller, RpcServer } from './server.js';
import { Session } from './session.js';
import type { Wire } from './wire.js';

export class RpcConnection {
  readonly #server: RpcServer;
  readonly #wire: Wire;
  readonly #encoding: Encoding;
  readonly #out: Outbox;
  readonly #session: Session;
  readonly #caller: Omit<Caller, 'holding'>;
  #closed = false;
  #reading = true;

  constructor(server: RpcServer, wire: Wire, options: { readonly encoding: Encoding; readonly scopes: Scopes }) {
    this.#server = server;
    this.#wire = wire;
    this.#encoding = options.encoding;
    this.#out = new Outbox(wire, options.encoding, () => this.writable());
    const maxRequests = server.deps.config.server.max_requests_per_connection;
    this.#session = new Session(this.#out, { maxRequests });
    const session = this.#session;
    this.#caller = { calls: session.calls, session, sinks: session, client: session, scopes: options.scopes };
  }

  /** One whole frame. */
  receive(data: string | Uint8Array): void {
    if (this.#closed) return;
    const message = decodeMessage(data, this.#encoding, this.#server.deps.config.server.max_message_bytes);
    const holding = this.#server.holdings.open();
    const release = (): void => holding.release();
    void this.#server.answer(message, { ...this.#caller, holding }, data.length).then((reply) => {
      if (reply === null) release();
      else this.#out.respond(reply, release);
      this.#steerReading();
    });
  }

  /** The socket's send buffer has drained: waiting events go out and paused requests go on. */
  writable(): void {
    if (this.#closed) return;
    this.#session.pump();
    this.#steerReading();
  }

  /** The socket closed: every unanswered call is cancelled. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#session.close();
  }

  /** The daemon is stopping: the client is told, calls that run may finish, new work is refused. */
  shutdown(): void {
    if (this.#closed || this.#session.draining) return;
    this.#session.draining = true;
    this.#out.notify('$/shutdown', { deadline_ms: Math.round(this.#server.deps.config.server.drain_timeout_s * 1000) });
  }

  /** Calls that are not answered yet, or whose answer is being written. */
  get pending(): number {
    return this.#session.calls.size + (this.#out.writing ? 1 : 0);
  }

  #steerReading(): void {
    if (this.#closed) return;
    const reading = !this.#out.crowded;
    if (reading === this.#reading) return;
    this.#reading = reading;
    this.#wire.setReading?.(reading);
  }
}
