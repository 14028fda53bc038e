/** Speaks to a port byte by byte, so that tests can send what no HTTP library would send. */
import { connect, type Socket } from 'node:net';

export interface RawReply {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Opens a connection to a TCP port or a Unix socket path. Errors of the socket are ignored: the reply tells what came through. */
export function rawConnect(to: number | string): Socket {
  const socket = typeof to === 'number' ? connect(to, '127.0.0.1') : connect(to);
  socket.on('error', () => {});
  return socket;
}

/** Sends lines (joined by CRLF) and reads one reply; the connection is closed afterwards. */
export async function rawRequest(to: number | string, lines: readonly string[], body = ''): Promise<RawReply> {
  const socket = rawConnect(to);
  socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`);
  try {
    return await readReply(socket);
  } finally {
    socket.destroy();
  }
}

/** Reads the head of a reply, and its body as far as content-length says. Status 0: the connection ended without a reply. */
export function readReply(socket: Socket): Promise<RawReply> {
  return new Promise((resolve) => {
    let text = '';
    const end = () => {
      socket.off('data', onData).off('close', end);
      resolve(parse(text));
    };
    const onData = (part: Buffer) => {
      text += part.toString('latin1');
      const head = text.indexOf('\r\n\r\n');
      if (head < 0) return;
      const length = /^content-length: *(\d+)/im.exec(text.slice(0, head))?.[1];
      if (length === undefined || text.length >= head + 4 + Number(length)) end();
    };
    socket.on('data', onData).on('close', end);
  });
}

function parse(text: string): RawReply {
  const [head = '', ...rest] = text.split('\r\n\r\n');
  const [start = '', ...lines] = head.split('\r\n');
  const headers = new Map(lines.map((l) => [l.slice(0, l.indexOf(':')).toLowerCase(), l.slice(l.indexOf(':') + 1).trim()] as const));
  return { status: Number(/^HTTP\/1\.1 (\d{3})/.exec(start)?.[1] ?? 0), headers, body: rest.join('\r\n\r\n') };
}

/** Lines of a WebSocket upgrade request without Host. */
export function upgradeLines(path = '/', extra: readonly string[] = []): string[] {
  return [
    `GET ${path} HTTP/1.1`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ...extra,
  ];
}
