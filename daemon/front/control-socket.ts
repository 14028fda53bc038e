/**
 * A WebSocket's connection as ws is to see it: what ws writes goes to the socket at once, in one order with frames that are written beside
 * it, and of what the client sends it reads only what it is given here (message-reader.ts takes the rest).
 */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

export class ControlSocket extends Duplex {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    super();
    this.#socket = socket;
    socket.on('end', () => this.push(null));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
  }

  override _read(): void {
    // Fed by `push` as bytes come; control frames are few and small.
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, done: () => void): void {
    this.#socket.write(chunk, encoding);
    done(); // what waits is counted at the socket
  }

  override _final(done: () => void): void {
    this.#socket.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#socket.destroy();
    done(error);
  }
}
