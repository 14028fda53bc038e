/**
 * The OpenAPI 3.1 document: every operation that the daemon serves by HTTP, with what holds for all of them: who may ask, which errors
 * every request may meet, and the one shape of errors. Statuses and codes come from the one table of errors.
 */
import { type ErrorKind, errorTable, httpTable, type RefusalStatus } from '../../actors/messages/errors.js';
import type { ShownMode } from '../../config/auth-modes.js';
import type { Dialect } from '../dialects/dialect.js';
import { openai } from '../dialects/openai/errors.js';
import { groups } from './groups.js';
import type { Access, Media, Operation } from './operation.js';
import { refTo } from './operation.js';

export interface OpenapiFacts {
  readonly version: string;
  /** What clients may show, one of these; nothing where it is empty. */
  readonly auth: readonly ShownMode[];
}

/** What every request may meet before its handler: bad HTTP, the gate, slow senders, too many at once, long headers, our bugs. */
const EVERYWHERE = [400, 403, 408, 429, 431, 500];
const OF_BODIES = [413, 415];
const NO_TOKEN = 401;
/** Answered by the parser of HTTP, or before a request has its turn. */
const BEFORE_ROUTES = [408, 431];

const tokenText = "A token of `inferd token create`, or the daemon's own, whose file is named in daemon.json. Never in a query.";
/** By mode of auth.mode: any of all these. */
const schemes: Readonly<Record<ShownMode, Readonly<Record<string, object>>>> = {
  token: {
    token: { type: 'http', scheme: 'bearer', description: tokenText },
    api_key: { type: 'apiKey', in: 'header', name: 'x-api-key', description: `${tokenText} As clients of Anthropic send it.` },
  },
  ed25519: {
    signature: {
      type: 'apiKey',
      in: 'header',
      name: 'Signature',
      description:
        'An HTTP message signature (RFC 9421) with Signature-Input: over @method, @authority, @path, @query, and content-digest (RFC 9530, ' +
        'sha-256) where there is a body; with created, nonce, keyid and alg="ed25519". It counts for 60 s, once.',
    },
  },
};
const schemesOf = (auth: OpenapiFacts['auth']): Readonly<Record<string, object>> => Object.assign({}, ...auth.map((mode) => schemes[mode]));

export function openapiDocument(operations: readonly Operation[], { version, auth }: OpenapiFacts): object {
  const responses = new Map(operations.flatMap((operation) => responsesOf(operation, auth).map((row) => [row.name, row] as const)));
  const dialects = new Set([openai, ...operations.map(({ dialect = openai }) => dialect)]);
  const shown = new Set<string>(operations.map(({ group }) => group));
  return {
    openapi: '3.1.0',
    info: {
      title: 'inferd',
      version,
      summary: 'A local LLM inference daemon.',
      description:
        'Shapes of OpenAI and vLLM, and JSON-RPC 2.0 as POST /rpc. HEAD answers wherever GET does, OPTIONS everywhere; ' +
        'another verb is 405, another path 404, both with the body of every error. The same port ' +
        'takes WebSockets at / and /rpc, whose methods /openrpc.json describes. Unknown members of a body are ignored, save those that ' +
        'would change the answer and cannot be done yet: these are refused by name.',
      license: { name: 'Apache 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/', description: 'This daemon.' }],
    tags: groups.filter(({ name }) => shown.has(name)).map(({ name, description }) => ({ name, description })),
    security: securityOf('any', auth),
    paths: pathsOf(operations, auth),
    components: {
      securitySchemes: schemesOf(auth),
      schemas: {
        ...Object.fromEntries([...dialects].map(({ errorName, errorSchema }) => [errorName, errorSchema])),
        ...Object.assign({}, ...operations.map(({ schemas }) => schemas ?? {})),
      },
      responses: Object.fromEntries(
        [...responses.values()]
          .sort((a, b) => (a.name < b.name ? -1 : 1))
          .map(({ name, status, dialect }) => [name, errorResponse(status, dialect)]),
      ),
    },
  };
}

/** Any of these: OpenAPI 3.1 takes the names of scopes with every kind of scheme. */
function securityOf(access: Access, auth: OpenapiFacts['auth']): object[] {
  if (access === 'open') return [];
  return Object.keys(schemesOf(auth)).map((scheme) => ({ [scheme]: access === 'any' ? [] : [access] }));
}

function pathsOf(operations: readonly Operation[], auth: OpenapiFacts['auth']): object {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of operations) {
    const verb = { [operation.verb.toLowerCase()]: operationObject(operation, auth) };
    paths[operation.path] = { ...paths[operation.path], ...verb };
  }
  return paths;
}

function operationObject(operation: Operation, auth: OpenapiFacts['auth']): object {
  const { id, group, summary, description, parameters, body, answers, access } = operation;
  const errors = responsesOf(operation, auth).filter(({ status }) => answers[status] === undefined);
  return {
    operationId: id,
    tags: [group],
    summary,
    ...(description === undefined ? {} : { description }),
    ...(auth.length === 0 || access === 'any' ? {} : { security: securityOf(access, auth) }),
    ...(access === 'any' || access === 'open' ? {} : { 'x-scope': access }),
    ...(parameters === undefined ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: { required: true, content: body } }),
    responses: {
      ...answers,
      ...Object.fromEntries(errors.map(({ status, name }) => [status, { $ref: `#/components/responses/${name}` }])),
    },
  };
}

interface ErrorOf {
  /** In `#/components/responses`. */
  readonly name: string;
  readonly status: number;
  readonly dialect: Dialect;
}

/** What an operation may fail with. Before its headers have come nobody knows whose shape is wanted: that is OpenAI's. */
function responsesOf({ access, body, errors = [], dialect = openai }: Operation, auth: OpenapiFacts['auth']): ErrorOf[] {
  const token = access !== 'open' && auth.length > 0 ? [NO_TOKEN] : [];
  const statuses = [...new Set([...EVERYWHERE, ...token, ...(body === undefined ? [] : OF_BODIES), ...errors])].sort();
  return statuses.map((status) => {
    const shaped = BEFORE_ROUTES.includes(status) ? openai : dialect;
    return { name: `${shaped.errorName}${status}`, status, dialect: shaped };
  });
}

interface Row {
  readonly status: number;
  readonly type: string;
  readonly code: string;
  readonly message: string | null;
}

function* rows(): Generator<Row> {
  for (const [status, { type, name }] of Object.entries(httpTable)) yield { status: Number(status), type, code: name, message: null };
  for (const [kind, row] of Object.entries(errorTable)) {
    const { status, type, message } = row;
    yield { status, type, code: 'name' in row ? row.name : kind, message };
  }
}

/** Every error of a status: its codes, and what they mean where they are more than the status. */
function errorResponse(status: number, dialect: Dialect): object {
  if (dialect !== openai)
    return { description: kindsOf(status, dialect), content: { 'application/json': { schema: refTo(dialect.errorName) } } };
  const here = [...rows()].filter((row) => row.status === status);
  const codes = [...new Set(here.map(({ code }) => code))];
  const told = here.flatMap(({ code, message }) => (message === null ? [] : [`\`${code}\`: ${message}.`]));
  const plain = httpTable[status as RefusalStatus]?.name;
  const first =
    plain === undefined || told.some((line) => line.startsWith(`\`${plain}\``)) ? [] : [`\`${plain}\`: ${whatIs[status] ?? 'Refused'}.`];
  const content: Record<string, Media> = {
    'application/json': {
      schema: {
        allOf: [
          refTo(openai.errorName),
          { type: 'object', properties: { error: { type: 'object', properties: { code: { enum: codes } } } } },
        ],
      },
    },
  };
  const retry = { 'Retry-After': { description: 'Seconds; not with every refusal.', schema: { type: 'integer', minimum: 1 } } };
  return { description: [...first, ...told].join(' '), ...(status === 429 || status === 503 ? { headers: retry } : {}), content };
}

/** What a dialect says with a status, as the kinds of the one table. */
function kindsOf(status: number, dialect: Dialect): string {
  const kinds = (Object.keys(errorTable) as ErrorKind[]).filter((kind) => dialect.failure({ kind }).status === status);
  const told = kinds.map((kind) => `${errorTable[kind].message}.`);
  return [...new Set([...(whatIs[status] === undefined ? [] : [`${whatIs[status]}.`]), ...told])].join(' ') || 'Refused.';
}

/** What HTTP refuses before there is a call. */
const whatIs: Readonly<Record<number, string>> = {
  400: 'The request is not valid HTTP, or has no Host',
  403: 'The Host or the Origin is not allowed',
  404: 'There is nothing at this path',
  408: 'The request took too long to arrive',
  413: 'The body is larger than server.max_message_bytes',
  415: 'The body is not declared as JSON in UTF-8, or is compressed',
  431: 'The headers are too large',
  503: 'The daemon is shutting down',
};
