/**
 * A WebSocket client that does as little as a client can: it walks over the headers of frames and looks at a few bytes to tell a
 * notification from a response; only responses are decoded. So that a benchmark on two cores measures the daemon and not its client.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { packMessage, unpackMessage } from '../../../actors/messages/codec.js';
import { clockUs } from './step-log.js';

export type Encoding = 'json' | 'msgpack';

const READ_BYTES = 64 * 1024;
const OPCODE = { text: 1, binary: 2, ping: 9, pong: 10 } as const;
/** A header of a server's frame, at most. */
const HEADER_BYTES = 10;
/** Up to and with the first letter of the second key, "method" or "id": {"jsonrpc":"2.0","m, or the same as a msgpack map. */
const KIND_AT: Readonly<Record<Encoding, number>> = { json: 18, msgpack: 14 };

export class BareSocket {
  /** Called for each notification with the time at which its bytes were read (one reading of the clock for all that came together). */
  onNotification: (readUs: number) => void = () => {};
  onResponse: (response: Record<string, unknown>) => void = () => {};
  readonly #socket: Socket;
  readonly #encoding: Encoding;
  #open = false;
  /** Beginning of a frame that is too short to tell what it is. */
  #carry: Buffer | null = null;
  /** Bytes of the frame at hand that are still to come. */
  #left = 0;
  /** The frame at hand, when it is a response. */
  #response: Buffer[] | null = null;

  private constructor(host: string, port: number, encoding: Encoding) {
    this.#encoding = encoding;
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    // One buffer for all reads. The types do not know that the callback's answer is optional.
    const onread = { buffer, callback: (bytes: number) => this.#onBytes(buffer.subarray(0, bytes)) };
    this.#socket = connect({ host, port, noDelay: true, onread });
  }

  static async open(url: string, encoding: Encoding): Promise<BareSocket> {
    const { hostname, port } = new URL(url);
    const bare = new BareSocket(hostname, Number(port), encoding);
    await once(bare.#socket, 'connect');
    const key = Buffer.from('inferd benchmark').toString('base64');
    const protocol = encoding === 'msgpack' ? 'jsonrpc.msgpack' : 'jsonrpc';
    bare.#socket.write(
      `GET / HTTP/1.1\r\nHost: ${hostname}:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ${key}\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: ${protocol}\r\n\r\n`,
    );
    while (!bare.#open) await new Promise((resolve) => setTimeout(resolve, 1));
    return bare;
  }

  /** @returns when it was handed to the system, clockUs. */
  send(message: object): number {
    const json = this.#encoding === 'json';
    const frame = clientFrame(json ? OPCODE.text : OPCODE.binary, json ? Buffer.from(JSON.stringify(message)) : packMessage(message));
    const at = clockUs();
    this.#socket.write(frame);
    return at;
  }

  /** Stops reading for good: what the daemon sends fills the system's buffers. */
  stall(): void {
    this.#socket.pause();
  }

  close(): void {
    this.#socket.destroy();
  }

  #onBytes(read: Buffer): boolean {
    const readUs = clockUs();
    if (!this.#open) {
      this.#open = read.includes('\r\n\r\n');
      return true;
    }
    let bytes = read;
    if (this.#carry !== null) {
      bytes = Buffer.concat([this.#carry, read]);
      this.#carry = null;
    }
    let at = 0;
    while (at < bytes.length) {
      if (this.#left > 0) {
        const end = Math.min(bytes.length, at + this.#left);
        this.#response?.push(Buffer.from(bytes.subarray(at, end))); // a copy: the buffer is used again
        this.#left -= end - at;
        at = end;
        if (this.#left === 0) this.#endFrame();
        continue;
      }
      const begun = this.#beginFrame(bytes, at, readUs);
      if (begun === null) {
        this.#carry = Buffer.from(bytes.subarray(at));
        break;
      }
      at = begun;
    }
    return true;
  }

  /** Reads a header. @returns where its payload begins, or null when more bytes are needed. */
  #beginFrame(bytes: Buffer, at: number, readUs: number): number | null {
    const have = bytes.length - at;
    if (have < 2) return null;
    const opcode = (bytes[at] ?? 0) & 15;
    const short = bytes[at + 1] ?? 0;
    if (short >= 126 && have < HEADER_BYTES) return null;
    const header = short < 126 ? 2 : short === 126 ? 4 : HEADER_BYTES;
    const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(at + 2) : bytes.readUInt32BE(at + 6);
    if (opcode === OPCODE.text || opcode === OPCODE.binary) {
      const kindAt = KIND_AT[this.#encoding];
      if (have <= header + kindAt) return null;
      if (bytes[at + header + kindAt] === 'i'.charCodeAt(0)) this.#response = [];
      else this.onNotification(readUs);
    } else if (opcode === OPCODE.ping) this.#socket.write(clientFrame(OPCODE.pong, new Uint8Array(0)));
    this.#left = length;
    return at + header;
  }

  #endFrame(): void {
    if (this.#response === null) return;
    const body = Buffer.concat(this.#response);
    this.#response = null;
    const message = this.#encoding === 'json' ? JSON.parse(body.toString('utf8')) : unpackMessage(body);
    this.onResponse(message as Record<string, unknown>);
  }
}

/** A final frame. The mask, which a client must set, is zero: masking then changes nothing. */
function clientFrame(opcode: number, payload: Uint8Array): Buffer {
  const header = payload.length < 126 ? 2 : 4; // longer than 64 KiB is not needed here
  const frame = Buffer.alloc(header + 4 + payload.length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | Math.min(payload.length, 126);
  if (header === 4) frame.writeUInt16BE(payload.length, 2);
  frame.set(payload, header + 4);
  return frame;
}
