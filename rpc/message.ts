/**
 * JSON-RPC 2.0 messages as plain data, after decoding and before encoding. Shared by both encodings and both doors.
 */
import type { ErrorKind, Failure } from '../actors/messages/errors.js';
import { errorTable } from '../actors/messages/errors.js';

export type Id = string | number | null;

/** Members a batch may have. */
export const maxBatchMembers = 32;

/** One member of a message, checked against the specification. */
export type Member =
  | {
      readonly kind: 'call';
      /** Absent: a notification, which is never answered. */
      readonly id?: Id;
      readonly method: string;
      readonly params?: Readonly<Record<string, unknown>> | readonly unknown[];
      /** Its text is not there whole: it is certain that the tokenizer takes no such text, and answers this. */
      readonly refused?: Failure;
    }
  | { readonly kind: 'invalid' /** `null` when it could not be read. */; readonly id: Id; readonly reason: string };

/**
 * One frame or body. `failed`: nothing in it could be read; answered by one error with id null. `notUtf8`: it was to be text and is none,
 * which a WebSocket ends its connection for (RFC 6455, 8.1).
 */
export type Message =
  | { readonly kind: 'single'; readonly member: Member }
  | { readonly kind: 'batch'; readonly members: readonly Member[] }
  | { readonly kind: 'failed'; readonly failure: Failure; readonly notUtf8?: true };

export interface ErrorObject {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

export type Response =
  | { readonly jsonrpc: '2.0'; readonly id: Id; readonly result: unknown }
  | { readonly jsonrpc: '2.0'; readonly id: Id; readonly error: ErrorObject };

export interface Notification {
  readonly jsonrpc: '2.0';
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

/** Data that clients may count on, for failures that came without. */
const defaultData: { readonly [K in ErrorKind]?: Failure['data'] } = {
  model_loading: { retry_after_ms: 1000 },
  engine_failure: { retriable: errorTable.engine_failure.retriable },
};

/** Code, sentence and data of a failure, as the error member of a response. */
function errorObject(failure: Failure): ErrorObject {
  const row = errorTable[failure.kind];
  const message = failure.message ?? row.message;
  const data = failure.data ?? defaultData[failure.kind];
  return data === undefined ? { code: row.code, message } : { code: row.code, message, data };
}

export function errorResponse(id: Id, failure: Failure): Response {
  return { jsonrpc: '2.0', id, error: errorObject(failure) };
}

/**
 * A reply as `encode` writes it. An answer that it cannot write, because it is beyond the longest string of the runtime, becomes an error;
 * in a batch all of them do.
 */
export function encodeReply<T>(reply: Response | readonly Response[], encode: (reply: Response | readonly Response[]) => T): T {
  try {
    return encode(reply);
  } catch {
    const tooLarge = ({ id }: Response): Response => errorResponse(id, { kind: 'internal', message: 'The answer is too large to be sent' });
    return encode('id' in reply ? tooLarge(reply) : reply.map(tooLarge));
  }
}

/** Key of an id in a Map: the ids 1 and "1" are different. */
export function idKey(id: string | number): string {
  return typeof id === 'string' ? `s${id}` : `n${id}`;
}
