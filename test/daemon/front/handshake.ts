/** The server's side of a WebSocket handshake, for tests that write frames themselves. */
import { createHash } from 'node:crypto';

/** RFC 6455, 1.3. */
const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** What to send back for a client's request. */
export function handshakeAnswer(request: string): string {
  const key = /^sec-websocket-key: *(\S+)/im.exec(request)?.[1] ?? '';
  const accept = createHash('sha1').update(`${key}${MAGIC}`).digest('base64');
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`;
}
