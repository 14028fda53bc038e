/**
 * Answers of the HTTP listener: JSON and text replies, error bodies in OpenAI's shape, refusals of upgrades, and reading a bounded body.
 * Used by http.ts and websocket.ts on the main thread.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import { type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ErrorKind, RefusalStatus } from '../../actors/messages/errors.js';
import type { Ahead, Pieces } from '../../rpc/decode/pieces.js';
import type { Dialect, ErrorReply } from '../../rpc/dialects/dialect.js';
import { openai } from '../../rpc/dialects/openai/errors.js';
import type { Slices } from '../../rpc/slices.js';
import { BodyPieces } from './body-pieces.js';
import { ReadShare } from './read-share.js';
import { SlicePump } from './slice-pump.js';
import { arrivalTime } from './turn-clock.js';

/** A reader that takes none of an answer for this long is cut off. */
const REPLY_IDLE_MS = 60_000;
/** After refusing a body we go on reading this long, so that the answer is not lost in a reset connection. */
const LINGER_MS = 1000;

/** A refusal before anything was done. */
export interface HttpError {
  readonly status: RefusalStatus;
  /** One plain sentence. */
  readonly message: string;
  readonly headers?: OutgoingHttpHeaders;
  /** What it is in the table of errors, where the status alone does not tell. */
  readonly kind?: ErrorKind;
}

/** A whole answer. */
export interface HttpReply {
  readonly status: number;
  /** JSON when not said. In UTF-8. */
  readonly type?: string;
  /** `null`: the answer has none. */
  readonly body: string | null;
  readonly headers?: OutgoingHttpHeaders | undefined;
}

export class BodyError extends Error {
  readonly status: 401 | 413;
  constructor(message: string, status: 401 | 413 = 413) {
    super(message);
    this.status = status;
  }
}

const replyOf = ({ status, message, kind }: HttpError, dialect: Dialect): ErrorReply =>
  kind === undefined ? dialect.refusal(status, message) : dialect.failure({ kind, message });

export function sendError(response: ServerResponse, error: HttpError, dialect: Dialect = openai): void {
  const { status, body, headers } = replyOf(error, dialect);
  send(response, { status, body, headers: { ...headers, ...error.headers } });
}

export function sendJson(response: ServerResponse, status: number, value: unknown, headers?: OutgoingHttpHeaders): void {
  send(response, { status, body: JSON.stringify(value), headers });
}

/** Sends a whole answer. Does nothing when the client is gone or was answered. */
export function send(response: ServerResponse, reply: HttpReply): void {
  if (response.headersSent || response.destroyed) return;
  writeHead(response, reply);
  response.end(reply.body ?? undefined);
}

/**
 * Sends a large answer in chunks, as the client takes them, and closes the slices. Resolves when the last has left or the client is gone.
 * @throws (rejects) what a slice threw; the connection then ends, or the client would take what it has for the whole.
 */
export function sendSlices(response: ServerResponse, status: number, slices: Slices): Promise<void> {
  if (response.headersSent || response.destroyed) {
    slices.close();
    return Promise.resolve();
  }
  writeHead(response, { status, body: null, headers: { 'content-type': contentType() } });
  return new Promise((resolve, reject) => {
    const pump = new SlicePump(slices, {
      write(slice, last) {
        const room = response.write(slice);
        if (last) response.end();
        return room;
      },
      done(error) {
        if (error === null) resolve();
        else {
          reject(error);
          setImmediate(() => response.destroy());
        }
      },
    });
    response.on('drain', () => pump.go());
    response.once('close', () => pump.stop());
  });
}

/** Answers while the client may still be sending: completes the answer, reads on for a moment and closes. */
export function sendErrorAndClose(request: IncomingMessage, response: ServerResponse, error: HttpError, dialect: Dialect = openai): void {
  if (response.headersSent || response.destroyed) return;
  const { status, body, headers } = replyOf(error, dialect);
  writeHead(response, { status, body, headers: { ...headers, ...error.headers, connection: 'close' } });
  response.write(body);
  const finish = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(finish, LINGER_MS);
  request.once('end', finish).once('close', finish).resume();
}

function contentType(type = 'application/json'): string {
  return `${type}; charset=utf-8`;
}

/** The head of an answer; `body` null: its length is not known, or it has none. */
export function writeHead(response: ServerResponse, { status, type, body, headers }: HttpReply): void {
  response.setTimeout(REPLY_IDLE_MS, () => response.destroy());
  response.writeHead(status, {
    ...(body === null ? {} : { 'content-type': contentType(type), 'content-length': Buffer.byteLength(body) }),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...headers,
  });
}

/** Refuses an upgrade, or answers a connection that has no ServerResponse, and closes it. */
export function refuseSocket(socket: Duplex, error: HttpError): void {
  if (!socket.writable || socket.destroyed) {
    socket.destroy();
    return;
  }
  const { body } = replyOf(error, openai);
  const extra = Object.entries(error.headers ?? {}).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.once('error', () => socket.destroy());
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}\r\ncontent-type: application/json; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n${extra.join('')}\r\n${body}`,
    () => socket.destroy(),
  );
}

export interface BodyRules {
  /** Bytes, at most. */
  readonly limit: number;
  /** The SHA-256 that it must have, or null; nobody sees a byte of it before that is certain. */
  readonly digest: Buffer | null;
  /** Where a large one goes while it arrives; null, it waits here. */
  readonly ahead: Ahead | null;
}

/**
 * Reads a body.
 * @throws BodyError as soon as it is known to be longer, or is another than was signed; any other error when the client goes away.
 */
export function readBody(request: IncomingMessage, response: ServerResponse, { limit, digest, ahead }: BodyRules): Promise<Pieces> {
  const tooLong = () => new BodyError(`The body is larger than ${limit} bytes (server.max_message_bytes).`);
  if (Number(request.headers['content-length'] ?? 0) > limit) return Promise.reject(tooLong());
  if (/^100-continue$/i.test(request.headers.expect ?? '')) response.writeContinue();
  return new Promise((resolve, reject) => {
    const pieces = new BodyPieces(digest === null ? ahead : null);
    const fail = (error: Error): void => {
      pieces.drop();
      reject(error);
    };
    let size = 0;
    const hash = digest === null ? null : createHash('sha256');
    const share = new ReadShare(() => request.resume());
    request.on('data', (part: Buffer) => {
      arrivalTime(); // of the last part it is the request's
      size += part.length;
      if (size > limit) {
        fail(tooLong());
      } else {
        hash?.update(part);
        pieces.add(part);
        share.took(part.length);
        if (share.over) request.pause();
      }
    });
    request.once('end', () => {
      if (hash === null || (digest !== null && timingSafeEqual(hash.digest(), digest))) resolve(pieces.take());
      else fail(new BodyError('The body is not the one that was signed (content-digest).', 401));
    });
    request.once('error', fail);
    request.once('close', () => {
      if (!request.complete) fail(new Error('the client closed the connection'));
    });
  });
}
