/**
 * WebSocket connections: handshake, limits, heartbeat, send buffers and closing. The only user of `ws` in the daemon.
 *
 *   upgrade (passed by http.ts) -> subprotocol -> RpcConnection -> frames both ways -> close
 *
 * ws does the handshake, control frames and closing; messages are read by message-reader.ts and written by message-frame.ts.
 *
 * Runs on the main thread. Each connection owns one RpcConnection and tells it when its send buffer has drained and when the socket is
 * gone. Close codes: 1001 the daemon stops, 1003 wrong kind of frame, 1007 bad UTF-8, 1008 the credential has ended, 1009 too large, 1011 a bug of ours.
 * Invariants: nothing is sent after close; a peer that neither reads nor answers pings, or never comes to the end of a message, is
 * dropped in bounded time.
 */

import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ServerOptions, type WebSocket, WebSocketServer } from 'ws';
import { errorFields, type Log } from '../../actors/runtime/log.js';
import type { Config } from '../../config/schema.js';
import type { Ahead, Pieces } from '../../rpc/decode/pieces.js';
import type { Scopes } from '../../rpc/scope.js';
import type { Slices } from '../../rpc/slices.js';
import type { Wire } from '../../rpc/wire.js';
import { ControlSocket } from './control-socket.js';
import { refuseSocket } from './http-reply.js';
import { type FramePart, messageFrame } from './message-frame.js';
import { MessageReader } from './message-reader.js';
import { ReadShare } from './read-share.js';
import type { Peer } from './route.js';
import { SlicePump } from './slice-pump.js';
import { arrivalTime } from './turn-clock.js';

export type Encoding = 'json' | 'msgpack';

/** The face of an RpcConnection that a socket drives. */
export interface MessageHandler {
  /** Calls that are not answered yet. */
  readonly pending: number;
  /**
   * The bytes of one message, which are the handler's from now on, and when the last of them was read (performance.now()). False: they
   * were to be text and are not UTF-8. A promise: the next message is not given before it resolves; it never rejects.
   */
  receivePieces(pieces: Pieces, arrivalMs: number): boolean | Promise<boolean>;
  writable(): void;
  close(): void;
  shutdown(): void;
}

export interface SocketsDeps {
  readonly config: Config['server'];
  readonly log: Log;
  /** A message must have arrived whole this long after its first byte, give or take a heartbeat; 60 s when not set. */
  readonly messageMs?: number;
  /** Where large messages go while they arrive; null, they wait here. */
  readonly ahead: Ahead | null;
  openHandler(wire: Wire, options: { encoding: Encoding; scopes: Scopes }): MessageHandler;
}

export interface Sockets {
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, peer: Peer): void;
  /** Open connections. */
  count(): number;
  /** Tells every client that the daemon is about to stop. */
  announceShutdown(): void;
  /** Lets answers that are due leave, closes every connection with 1001, and resolves when all are gone, at the latest after `withinMs`. */
  closeAll(withinMs: number): Promise<void>;
}

const subprotocols: ReadonlyMap<string, Encoding> = new Map([
  ['jsonrpc', 'json'],
  ['jsonrpc.msgpack', 'msgpack'],
]);

const MESSAGE_TIMEOUT_MS = 60_000;
/** Pieces of one message, and reads it may take: far above what any client needs, and each costs more memory than its bytes. */
const MAX_FRAGMENTS = 4096;
const MAX_READS = 16_384;
/** Below this many buffered bytes the handler is told that it may send again. */
const LOW_WATER_BYTES = 256 * 1024;
/** A peer gets this long to answer our close frame. */
const CLOSE_TIMEOUT_MS = 2000;
const ANSWER_POLL_MS = 5;
const NOTHING = Buffer.alloc(0);

export function createSockets(deps: SocketsDeps): Sockets {
  const options: ServerOptions & { closeTimeout: number } = {
    noServer: true,
    maxPayload: deps.config.max_message_bytes,
    // Compression is memory and a decompression bomb for text that stays on this machine.
    perMessageDeflate: false,
    clientTracking: false,
    closeTimeout: CLOSE_TIMEOUT_MS,
    handleProtocols: (offered) => [...offered].find((p) => subprotocols.has(p)) ?? false,
  };
  const server = new WebSocketServer(options);
  // Else ws would answer in HTML.
  server.on('wsClientError', ({ message }, socket) => {
    refuseSocket(socket, {
      status: 400,
      message: `This is not a WebSocket handshake: ${message}.`,
      headers: { 'sec-websocket-version': '13' },
    });
  });
  const open = new Set<Connection>();
  const stalledMs = (deps.config.slow_client_timeout_s + 2 * deps.config.ping_interval_s) * 1000;
  const heartbeat = setInterval(() => {
    const now = performance.now();
    for (const connection of open) connection.beat(now, stalledMs);
  }, deps.config.ping_interval_s * 1000);
  heartbeat.unref();

  return {
    upgrade(request, socket, head, peer) {
      if (open.size >= deps.config.max_connections) {
        refuseSocket(socket, { status: 503, message: 'Too many connections are open (server.max_connections).' });
        return;
      }
      const offered = request.headers['sec-websocket-protocol']?.split(',').map((p) => p.trim()) ?? [];
      if (offered.length > 0 && !offered.some((p) => subprotocols.has(p))) {
        refuseSocket(socket, { status: 400, message: 'Offer the subprotocol jsonrpc or jsonrpc.msgpack, or none.' });
        return;
      }
      const control = new ControlSocket(request.socket);
      server.handleUpgrade(request, control, NOTHING, (websocket) => {
        const connection = new Connection(websocket, { socket: request.socket, control, head }, deps, peer.scopes);
        open.add(connection);
        const forget = peer.onEnd(() => connection.endCredential());
        websocket.once('close', () => {
          forget();
          open.delete(connection);
        });
      });
    },
    count: () => open.size,
    announceShutdown() {
      for (const connection of open) connection.announceShutdown();
    },
    async closeAll(withinMs) {
      clearInterval(heartbeat);
      const until = performance.now() + withinMs;
      const late = setTimeout(() => {
        for (const connection of open) connection.terminate();
      }, withinMs);
      await Promise.all([...open].map((connection) => connection.closeGently(until)));
      clearTimeout(late);
    },
  };
}

/** A connection below its WebSocket. */
interface Line {
  readonly socket: Socket;
  /** The same as ws sees it. */
  readonly control: ControlSocket;
  /** What came with the upgrade. */
  readonly head: Buffer;
}

class Connection implements Wire {
  readonly #ws: WebSocket;
  readonly #socket: Socket;
  readonly #control: ControlSocket;
  readonly #reader: MessageReader;
  readonly #messageMs: number;
  readonly #ahead: Ahead | null;
  readonly #log: Log;
  readonly #encoding: Encoding;
  readonly #handler: MessageHandler;
  #corked = false;
  /** So much waited to be sent that the handler may have held something back; it waits for `writable`. */
  #pressed = false;
  /** The message that is being sent in fragments. */
  #pump: SlicePump | null = null;
  /** A ping left and nothing came back since. */
  #pinged = false;
  #lastProgress = performance.now();
  /** When bytes were last read; a message may then wait for its turn. */
  #readMs = 0;
  /** What the socket had received at the last heartbeat. */
  #received = 0;
  /** The handler has a message and takes the next one later. */
  #handling = false;
  /** One message was read in this turn. */
  #turnTaken = false;
  /** What is read of the socket in this turn. */
  readonly #share = new ReadShare(() => this.#read());
  /** The handler wants no more for now. */
  #held = false;
  #paused = false;
  /** A heartbeat saw the beginning of a message whose end has not come since. */
  #partialSince: number | null = null;
  #closed = false;

  constructor(ws: WebSocket, { socket, control, head }: Line, deps: SocketsDeps, scopes: Scopes) {
    this.#ws = ws;
    this.#socket = socket;
    this.#control = control;
    const { max_message_bytes: maxBytes } = deps.config;
    this.#reader = new MessageReader({ maxBytes, maxFragments: MAX_FRAGMENTS, maxReads: MAX_READS }, deps.ahead);
    this.#ahead = deps.ahead;
    this.#messageMs = deps.messageMs ?? MESSAGE_TIMEOUT_MS;
    this.#log = deps.log;
    this.#encoding = subprotocols.get(ws.protocol) ?? 'json';
    this.#handler = deps.openHandler(this, { encoding: this.#encoding, scopes });
    ws.on('pong', () => {
      this.#pinged = false;
    });
    ws.on('error', (error) => this.#log.debug({ error: error.message }, 'a WebSocket peer broke the protocol'));
    ws.once('close', () => {
      this.#closed = true;
      this.#handler.close();
      this.#reader.drop();
      this.#pump?.stop();
    });
    socket.on('data', (chunk) => {
      this.#readMs = arrivalTime();
      this.#reader.add(chunk);
      this.#share.took(chunk.length);
      this.#read();
    });
    if (head.length > 0) socket.unshift(head);
  }

  send(data: string | Uint8Array): void {
    this.#write(data);
  }

  /** As fragments of one message (RFC 6455, 5.4). Pings and a close frame may come between them. */
  sendSlices(slices: Slices, done: () => void): void {
    let first = true;
    this.#pump = new SlicePump(slices, {
      write: (slice, last) => {
        this.#write(slice, { first, last });
        first = false;
        if (!this.#isOpen()) this.#pump?.stop(); // it is closing: nobody will read the rest
        return this.bufferedBytes() <= LOW_WATER_BYTES;
      },
      done: (error) => {
        this.#pump = null;
        if (error !== null) this.#fail(error, 'an answer could not be written');
        done();
      },
    });
    if (!this.#isOpen()) this.#pump.stop();
  }

  #isOpen(): boolean {
    return !this.#closed && this.#ws.readyState === this.#ws.OPEN;
  }

  #write(data: string | Uint8Array, part?: FramePart): void {
    if (!this.#isOpen()) return;
    let frame: Buffer;
    try {
      frame = messageFrame(data, part);
    } catch (error) {
      this.#fail(error, 'there is no memory for a message'); // of hundreds of megabytes
      return;
    }
    if (!this.#corked) {
      // All frames of this turn leave in one write.
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(this.#uncork);
    }
    // Not by ws.send, which writes a frame as two buffers: at one token a frame that costs a tenth of the daemon's processor time.
    this.#socket.write(frame, this.#onSent);
  }

  bufferedBytes(): number {
    return this.#socket.writableLength;
  }

  /** Backpressure on input, asked for by the handler of a client that calls and takes no answers. */
  setReading(on: boolean): void {
    this.#held = !on;
    this.#read();
  }

  /** Reads what has come, one message a turn: a packet may hold hundreds, and other clients come between them. */
  #read(): void {
    while (!this.#waits()) {
      const next = this.#reader.read();
      if (next === null) break;
      if (next.kind === 'other') this.#control.push(next.bytes);
      else if (next.kind === 'broken') this.#ws.close(next.code, next.reason);
      else this.#onMessage(next.pieces, next.text);
    }
    const waits = this.#waits();
    if (waits) this.#partialSince = null;
    const pauses = waits || this.#share.over;
    if (pauses === this.#paused) return;
    this.#paused = pauses;
    if (pauses) this.#socket.pause();
    else this.#socket.resume();
  }

  /** Nothing is read now. Who closes reads on, for the client's close frame. */
  #waits(): boolean {
    return this.#isOpen() && (this.#handling || this.#turnTaken || this.#held);
  }

  announceShutdown(): void {
    this.#handler.shutdown();
  }

  /** One beat of the heart: drop a dead peer, else ping it. A ping still in our buffer is not held against a slow reader. */
  beat(now: number, stalledMs: number): void {
    const { bytesRead } = this.#socket;
    // Its pong is not read, or comes behind what it is sending.
    if (this.#waits() || bytesRead > this.#received) this.#pinged = false;
    this.#received = bytesRead;
    if (this.#waits() || !this.#reader.partial) this.#partialSince = null;
    else {
      this.#partialSince ??= now;
      if (now - this.#partialSince > this.#messageMs) {
        this.#drop('never came to the end of a message');
        return;
      }
    }
    if (this.bufferedBytes() > 0) {
      this.#pinged = false;
      if (now - this.#lastProgress > stalledMs) this.#drop('took nothing for too long');
      return;
    }
    this.#lastProgress = now;
    if (this.#pinged) this.#drop('did not answer a ping');
    else if (this.#ws.readyState === this.#ws.OPEN) {
      this.#pinged = true;
      this.#ws.ping();
    }
  }

  /** Closes when every call is answered, or at `until` (performance.now()). Resolves when the socket is gone. */
  async closeGently(until: number): Promise<void> {
    // An ended request is answered a few turns after its end, and its answer leaves a few more after it stopped pending.
    do await sleep(ANSWER_POLL_MS);
    while ((this.#handler.pending > 0 || this.#handling) && !this.#closed && performance.now() < until);
    if (this.#closed) return;
    const closed = new Promise<void>((resolve) => this.#ws.once('close', () => resolve()));
    // The close frame queues behind all data, so nothing that was sent is lost.
    this.#ws.close(1001, 'The daemon is shutting down');
    this.#read();
    await closed;
  }

  /** Who opened it may no longer ask: all calls end now, unanswered. */
  endCredential(): void {
    if (!this.#isOpen()) return;
    this.#handler.close();
    this.#pump?.stop();
    this.#ws.close(1008, 'The credential was revoked or has expired');
    this.#read();
  }

  terminate(): void {
    this.#ws.terminate();
  }

  #onMessage(pieces: Pieces, text: boolean): void {
    if (!this.#isOpen()) {
      this.#ahead?.drop(pieces);
      return;
    }
    this.#pinged = false;
    this.#partialSince = null;
    this.#share.nextMessage();
    if (text === (this.#encoding === 'msgpack')) {
      this.#ahead?.drop(pieces);
      const wanted = text ? 'This subprotocol takes binary frames' : 'This subprotocol takes text frames';
      this.#ws.close(1003, wanted);
      return;
    }
    try {
      const good = this.#handler.receivePieces(pieces, this.#readMs);
      if (typeof good === 'boolean') this.#taken(good);
      else {
        this.#handling = true;
        void good.then((later) => {
          this.#handling = false;
          this.#taken(later);
          this.#read();
        });
      }
    } catch (error) {
      // The handler answers bad input itself: an exception here is a bug and must not take the daemon down.
      this.#fail(error, 'a WebSocket message failed');
    }
    if (this.#reader.numUnread === 0) return;
    this.#turnTaken = true;
    setImmediate(this.#nextTurn);
  }

  /** The handler has taken a message. */
  #taken(utf8: boolean): void {
    if (!utf8 && this.#isOpen()) this.#ws.close(1007, 'The text is not UTF-8');
  }

  /** Costs the peer its connection. */
  #fail(error: unknown, what: string): void {
    this.#log.error(errorFields(error), what);
    this.#ws.close(1011, 'Internal error');
  }

  readonly #nextTurn = (): void => {
    this.#turnTaken = false;
    this.#read();
  };

  readonly #uncork = (): void => {
    this.#corked = false;
    // What the handler saw in this turn counts, though the kernel may take all of it now.
    if (this.bufferedBytes() > LOW_WATER_BYTES) this.#pressed = true;
    this.#socket.uncork();
  };

  /** A frame was handed to the kernel, or will never be. */
  readonly #onSent = (error?: Error | null): void => {
    if (error || this.#closed) return;
    this.#lastProgress = performance.now();
    const low = this.bufferedBytes() <= LOW_WATER_BYTES;
    if (this.#pump !== null && low) this.#pump.go();
    if (!this.#pressed || this.bufferedBytes() > LOW_WATER_BYTES) return;
    this.#pressed = false;
    this.#handler.writable();
  };

  #drop(why: string): void {
    this.#log.info({ buffered: this.bufferedBytes() }, `a WebSocket peer was dropped: it ${why}`);
    this.#ws.terminate();
  }
}
