/**
 * The one table of errors: JSON-RPC code, HTTP status, OpenAI's `error.type` and `error.code`, and whether a client may try the same call
 * again. An error crosses threads as plain data (`Failure`) and becomes an answer at the rpc or http border only.
 */

interface ErrorRow {
  readonly code: number;
  readonly status: number;
  readonly type: string;
  /** OpenAI's `error.code`, where it is not the kind. */
  readonly name?: string;
  readonly retriable: boolean;
  readonly message: string;
}

export const errorTable = {
  parse_error: { code: -32700, status: 400, type: 'invalid_request_error', retriable: false, message: 'The message is not valid JSON' },
  invalid_request: {
    code: -32600,
    status: 400,
    type: 'invalid_request_error',
    retriable: false,
    message: 'The message is not a valid request',
  },
  method_not_found: { code: -32601, status: 404, type: 'invalid_request_error', retriable: false, message: 'There is no such method' },
  invalid_params: { code: -32602, status: 400, type: 'invalid_request_error', retriable: false, message: 'The parameters are not valid' },
  internal: { code: -32603, status: 500, type: 'server_error', retriable: false, message: 'Internal error' },
  unauthorized: {
    code: -32001,
    status: 401,
    type: 'authentication_error',
    name: 'invalid_api_key',
    retriable: false,
    message: 'A valid token is required',
  },
  /** Who asks is known, but may not ask for this. */
  insufficient_scope: {
    code: -32001,
    status: 403,
    type: 'permission_error',
    retriable: false,
    message: 'The caller does not have the scope that this needs',
  },
  model_not_found: { code: -32002, status: 404, type: 'invalid_request_error', retriable: false, message: 'The model is not served here' },
  model_loading: { code: -32003, status: 503, type: 'server_error', retriable: true, message: 'The model is still loading' },
  overloaded: {
    code: -32005,
    status: 429,
    type: 'rate_limit_error',
    name: 'queue_full',
    retriable: true,
    message: 'Too many requests are waiting',
  },
  context_length_exceeded: {
    code: -32006,
    status: 400,
    type: 'invalid_request_error',
    retriable: false,
    message: 'The request does not fit the context',
  },
  out_of_memory: { code: -32007, status: 503, type: 'server_error', retriable: true, message: 'Not enough memory' },
  slow_consumer: { code: -32008, status: 408, type: 'server_error', retriable: true, message: 'The client reads too slowly' },
  shutting_down: { code: -32009, status: 503, type: 'server_error', retriable: true, message: 'The daemon is shutting down' },
  rate_limited: { code: -32010, status: 429, type: 'rate_limit_error', retriable: true, message: 'Too many requests at once' },
  unsupported: { code: -32011, status: 400, type: 'invalid_request_error', retriable: false, message: 'This feature is not supported' },
  engine_failure: { code: -32012, status: 500, type: 'server_error', retriable: true, message: 'The engine failed' },
  /** To a client, an engine that does not come back. */
  bad_model: { code: -32012, status: 500, type: 'server_error', retriable: false, message: 'The files of the model cannot be used' },
  missing_file: { code: -32012, status: 500, type: 'server_error', retriable: false, message: 'A file of the model cannot be read' },
  /** LSP's RequestFailed: a good request that the state of things does not allow now. */
  request_failed: {
    code: -32803,
    status: 409,
    type: 'invalid_request_error',
    retriable: false,
    message: 'The request cannot be done now',
  },
  cancelled: { code: -32800, status: 499, type: 'cancelled', retriable: true, message: 'Request cancelled' },
} as const satisfies Readonly<Record<string, ErrorRow>>;

/** What HTTP refuses before there is a call: OpenAI's `error.type` and `error.code` by status. */
export const httpTable = {
  400: { type: 'invalid_request_error', name: 'bad_request' },
  401: { type: errorTable.unauthorized.type, name: errorTable.unauthorized.name },
  403: { type: 'permission_error', name: 'forbidden' },
  404: { type: 'invalid_request_error', name: 'not_found' },
  405: { type: 'invalid_request_error', name: 'method_not_allowed' },
  408: { type: 'invalid_request_error', name: 'request_timeout' },
  413: { type: 'invalid_request_error', name: 'too_large' },
  415: { type: 'invalid_request_error', name: 'unsupported_media_type' },
  429: { type: errorTable.rate_limited.type, name: 'rate_limited' },
  431: { type: 'invalid_request_error', name: 'headers_too_large' },
  500: { type: errorTable.internal.type, name: 'internal' },
  503: { type: 'server_error', name: 'unavailable' },
} as const;

export type RefusalStatus = keyof typeof httpTable;

/** The body of an HTTP error: OpenAI's shape, all four fields always there. `param`: the one that is wrong. */
export function httpErrorBody(message: string, row: { readonly type: string; readonly name: string }, param: string | null = null): string {
  return JSON.stringify({ error: { message, type: row.type, param, code: row.name } });
}

/** A failure as the body of an HTTP error. */
export function failureBody({ kind, message, data }: Failure): string {
  const row = { name: kind, ...errorTable[kind] };
  const param = Array.isArray(data) ? ((data[0] as ParamIssue | undefined)?.path ?? null) : null; // proof: only invalidParams gives a list
  return httpErrorBody(message ?? row.message, row, param || null);
}

export type ErrorKind = keyof typeof errorTable;

/** Why a request ended without an answer, as plain data. */
export interface Failure {
  readonly kind: ErrorKind;
  /** One plain sentence for the caller; the table's text when absent. Never holds prompt text or internals. */
  readonly message?: string;
  /** Goes into `error.data` of the answer. */
  readonly data?: Readonly<Record<string, unknown>> | readonly unknown[];
}

/** A failure as an exception, for use inside one thread. */
export class InferdError extends Error {
  readonly failure: Failure;
  constructor(kind: ErrorKind, message?: string, data?: Failure['data']) {
    super(message ?? errorTable[kind].message);
    this.name = 'InferdError';
    this.failure = { kind, message: this.message, ...(data === undefined ? {} : { data }) };
  }
}

/** What a caller is told of an exception: nothing of one that is none of the table's. */
export function failureOf(error: unknown): Failure {
  return error instanceof InferdError ? error.failure : { kind: 'internal' };
}

/** One thing that is wrong with the params. */
export interface ParamIssue {
  /** For example "messages[0].role"; "" is the whole. */
  readonly path: string;
  readonly message: string;
}

/** Issues that one failure tells of. */
const maxIssues = 16;

/** The failure for wrong params, as thrown by schemas, handlers and tokenizers alike. Tells of the first ones. */
export function invalidParams(issues: readonly ParamIssue[]): InferdError {
  const first = issues[0];
  const where = first === undefined || first.path === '' ? '' : `${first.path}: `;
  return new InferdError('invalid_params', `Invalid params: ${where}${first?.message ?? 'not valid'}`, issues.slice(0, maxIssues));
}

/** Codes of a native engine fault, as in StepResult.errorCode. */
export const engineFault = {
  none: 0,
  /** This plan was malformed or failed; nothing else is harmed but the group restarts to be safe. */
  step: 1,
  /** Out of device memory inside a step. */
  outOfMemory: 2,
  /** The device or process state is spoiled (sticky CUDA error): the process must end. */
  fatal: 3,
} as const;
