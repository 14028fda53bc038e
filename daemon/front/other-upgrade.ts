/**
 * Requests that offer to go on in another protocol than WebSocket: curl --http2 and Java's HttpClient offer h2c with their first one.
 * A server may ignore such an offer (RFC 9110, 7.8), but Node, once somebody listens for upgrades, takes every request with one for an
 * upgrade and lets go of its connection. So the request goes back in front of what has come since, without the offer, and the connection
 * goes back to the server, as soon as the requests ahead of it have been answered: Node would start to answer it beside them, and then
 * lose its answer. Used by http.ts on the main thread.
 *
 * Newer versions of Node read a body that comes with an offer themselves, so that it cannot go back. They can be told to answer such a
 * request as if it offered nothing (takesOffer), and then forget what came behind it.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { type HttpError, refuseSocket, sendErrorAndClose } from './http-reply.js';

/** An option of Node's HTTP server (24.9 and later; older ones ignore it): false answers the request as if it offered nothing. */
export interface UpgradeChoice {
  readonly shouldUpgradeCallback: (request: IncomingMessage) => boolean;
}

/** True for all that the listener for upgrades can take: WebSockets, and requests without a body, which can go back. */
export function takesOffer(request: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
  return wantsWebSocket(request) || (encoding === undefined && (length === undefined || /^0+$/.test(length)));
}

/** True when the client wants a WebSocket, whatever else it offers. */
export function wantsWebSocket(request: IncomingMessage): boolean {
  return /(^|,)\s*websocket\s*(,|$)/i.test(request.headers.upgrade ?? '');
}

/** Which answer of each connection comes last, so that what is no request to Node waits for its turn. */
export class LastAnswers {
  readonly #last = new WeakMap<Duplex, ServerResponse<IncomingMessage>>();
  readonly #refused = new WeakSet<Duplex>();

  /** An answer was begun: at once, or behind those ahead of it. */
  began(response: ServerResponse<IncomingMessage>, { socket }: IncomingMessage): void {
    this.#last.set(socket, response);
  }

  /** Runs `next` when all answers that were begun have left; not at all when the connection ended meanwhile. */
  whenLeft(socket: Duplex, next: () => void): void {
    const last = this.#last.get(socket);
    if (last === undefined || last.closed) {
      next();
      return;
    }
    // Node no longer listens to this connection, and an error that nobody hears ends the process.
    const onError = (): void => {};
    socket.on('error', onError);
    last.once('close', () => {
      socket.off('error', onError);
      if (!socket.destroyed) next();
    });
  }

  /**
   * Refuses what came and is no HTTP, once: as the answer to the request whose body it would be, else behind all answers, none of which it
   * may cut or come before.
   */
  refuse(socket: Duplex, error: HttpError): void {
    if (this.#refused.has(socket)) return;
    this.#refused.add(socket);
    const last = this.#last.get(socket);
    if (last === undefined || last.req.complete) this.whenLeft(socket, () => refuseSocket(socket, error));
    else if (last.socket !== null && !last.headersSent) refuseSocket(socket, error);
    else sendErrorAndClose(last.req, last, error);
  }
}

/** Lets `server` answer the request as if it had no Upgrade header. `head`: what was read behind the headers. */
export function serveWithoutUpgrade(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  request.socket.setTimeout(0); // of a connection without requests, set when the one ahead was answered
  socket.unshift(head);
  socket.unshift(Buffer.from(headersWithoutUpgrade(request), 'latin1')); // as Node read them
  server.emit('connection', socket);
}

function headersWithoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): string {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const [name = '', value = ''] = [rawHeaders[i], rawHeaders[i + 1]];
    if (!/^(upgrade|http2-settings)$/i.test(name)) lines.push(`${name}: ${/^connection$/i.test(name) ? keptOptions(value) : value}`);
  }
  return `${lines.join('\r\n')}\r\n\r\n`;
}

function keptOptions(connection: string): string {
  const options = connection.split(',').map((option) => option.trim());
  return options.filter((option) => !/^(upgrade|http2-settings)$/i.test(option)).join(', ') || 'keep-alive';
}
