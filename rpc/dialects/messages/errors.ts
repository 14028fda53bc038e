/** Errors in Anthropic's shape, each with the id of its request, in the body and as the header `request-id`. */
import { randomUUID } from 'node:crypto';
import { type ErrorKind, errorTable, type Failure, type RefusalStatus } from '../../../actors/messages/errors.js';
import type { Dialect, ErrorReply } from '../dialect.js';

const types = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  529: 'overloaded_error',
} as const;

/** Their status for what has no room now; a client may try again. */
const OVERLOADED = 529;
const noRoom: ReadonlySet<ErrorKind> = new Set(['overloaded', 'model_loading', 'shutting_down', 'out_of_memory']);

function statusOf(kind: ErrorKind): number {
  return noRoom.has(kind) ? OVERLOADED : errorTable[kind].status;
}

function typeOf(status: number): string {
  return types[status as keyof typeof types] ?? (status < 500 ? types[400] : types[500]);
}

interface ErrorObject {
  readonly error: { readonly type: string; readonly message: string };
  readonly request_id: string;
}

function errorObject(status: number, message: string): ErrorObject {
  return { error: { type: typeOf(status), message }, request_id: `req_${randomUUID().replaceAll('-', '')}` };
}

function reply(status: number, message: string): ErrorReply {
  const error = errorObject(status, message);
  return { status, body: JSON.stringify({ type: 'error', ...error }), headers: { 'request-id': error.request_id } };
}

/** What the event `error` of a stream holds, besides its type. */
export function failureObject({ kind, message }: Failure): ErrorObject {
  return errorObject(statusOf(kind), message ?? errorTable[kind].message);
}

export const anthropic: Dialect = {
  errorName: 'AnthropicError',
  errorSchema: {
    type: 'object',
    description: "Errors in Anthropic's shape.",
    required: ['type', 'error', 'request_id'],
    properties: {
      type: { const: 'error' },
      error: {
        type: 'object',
        required: ['type', 'message'],
        properties: { type: { enum: Object.values(types) }, message: { type: 'string', description: 'One plain sentence.' } },
      },
      request_id: { type: 'string', description: 'Also the header request-id.' },
    },
  },
  failure: ({ kind, message }) => reply(statusOf(kind), message ?? errorTable[kind].message),
  refusal: (status: RefusalStatus, message) => reply(status === 503 ? OVERLOADED : status, message),
};
