/**
 * One WebSocket connection as JSON-RPC: frames in, frames out. Made by daemon/front/websocket.ts for each socket, on the main thread.
 * Invariants: every request gets exactly one response unless the socket closed before; nothing is sent after `close`; no input makes
 * any method of this class throw.
 */
import { decodeMessage, type Encoding } from './decode/decode.js';
import { largeBytes } from './decode/large-messages.js';
import { joined, lengthOf, type Pieces } from './decode/pieces.js';
import type { Message } from './message.js';
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
  readonly #caller: Omit<Caller, 'holding' | 'arrivalMs'>;
  #closed = false;
  #reading = true;
  /** A large message is being decoded. */
  #decoding = false;

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

  /** One whole message. */
  receive(data: string | Uint8Array): void {
    const arrivalMs = performance.now();
    if (!this.#closed) this.#answer(this.#decode(data), data.length, arrivalMs);
  }

  /**
   * The same in pieces, which are not the caller's any more. False, and no answer: it was to be text and is not UTF-8. A promise, of large
   * messages: the next one is to be given when it has resolved, so that messages are begun in their order. `arrivalMs`: when the last of
   * them was read, performance.now().
   */
  receivePieces(pieces: Pieces, arrivalMs = performance.now()): boolean | Promise<boolean> {
    if (this.#closed) {
      this.#server.large.drop(pieces);
      return true;
    }
    const length = lengthOf(pieces);
    return length > largeBytes
      ? this.#receiveLarge(pieces, length, arrivalMs)
      : this.#take(this.#decode(joined(pieces)), length, arrivalMs);
  }

  async #receiveLarge(pieces: Pieces, length: number, arrivalMs: number): Promise<boolean> {
    this.#decoding = true;
    const message = await this.#server.large.message(pieces, this.#encoding);
    this.#decoding = false;
    return this.#closed || this.#take(message, length, arrivalMs);
  }

  #decode(data: string | Uint8Array): Message {
    return decodeMessage(data, this.#encoding, this.#server.deps.config.server.max_message_bytes);
  }

  #take(message: Message, length: number, arrivalMs: number): boolean {
    if (message.kind === 'failed' && message.notUtf8) return false;
    this.#answer(message, length, arrivalMs);
    return true;
  }

  #answer(message: Message, length: number, arrivalMs: number): void {
    const holding = this.#server.holdings.open();
    const release = (): void => holding.release();
    void this.#server.answer(message, { ...this.#caller, holding, arrivalMs }, length).then((reply) => {
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
    return this.#session.calls.size + (this.#out.writing ? 1 : 0) + (this.#decoding ? 1 : 0);
  }

  #steerReading(): void {
    if (this.#closed) return;
    const reading = !this.#out.crowded;
    if (reading === this.#reading) return;
    this.#reading = reading;
    this.#wire.setReading?.(reading);
  }
}
