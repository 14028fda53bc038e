/**
 * Requests that offer to go on in another protocol than WebSocket: curl --http2 and Java's HttpClient offer h2c with their first one.
 * A server may ignore such an offer (RFC 9110, 7.8), but Node, once somebody listens for upgrades, takes every request with one for an
 * upgrade and lets go of its connection. So the request goes back in front of what has come since, without the offer, and the connection
 * goes back to the server. Used by http.ts on the main thread.
 */
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';

/** True when the client wants a WebSocket, whatever else it offers. */
export function wantsWebSocket(request: IncomingMessage): boolean {
  return /(^|,)\s*websocket\s*(,|$)/i.test(request.headers.upgrade ?? '');
}

/** Lets `server` answer the request as if it had no Upgrade header. `head`: what was read behind the headers. */
export function serveWithoutUpgrade(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
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
