/**
 * What answers at which path: the daemon's own routes (own-routes.ts), and every method whose value has an HTTP face. "open" ones need no
 * token (health probes, pages). The OpenAPI document is made of the same entries as the table.
 * Handlers run on the main thread, after gate and token.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Ahead, Pieces } from '../../rpc/decode/pieces.js';
import type { StreamFormat } from '../../rpc/dialects/dialect.js';
import { type OpenapiFacts, openapiDocument } from '../../rpc/documents/openapi.js';
import type { Operation } from '../../rpc/documents/operation.js';
import type { Face } from '../../rpc/face.js';
import type { TraceHeaders } from '../../rpc/observe.js';
import type { PostOptions, PostReply, RpcServer } from '../../rpc/server.js';
import { mayBePage } from './gate.js';
import { BodyError, type HttpError, readBody, send, sendErrorAndClose, sendSlices } from './http-reply.js';
import { type OwnRouteDeps, ownRoutes } from './own-routes.js';
import type { Described, Handler, OwnRoute, Peer, Route } from './route.js';
import { StreamDoor } from './stream-door.js';
import { arrivalTime } from './turn-clock.js';

export interface RouteTable {
  /** The route of a path without its query. */
  get(path: string): Route | undefined;
  /** The path of its route as the table has it, or "none". */
  nameOf(path: string): string;
  /** Every verb that is answered, as "GET /v1/models/" where a name may follow. */
  served(): readonly string[];
}

export interface RouteDeps extends OwnRouteDeps {
  /** JSON-RPC over HTTP, and the description of its methods. */
  readonly rpc: Pick<RpcServer, 'handlePost' | 'handleCall' | 'faces' | 'openrpc' | 'operations'>;
  /** What clients may show, for the documents. */
  readonly auth: OpenapiFacts['auth'];
  readonly maxBodyBytes: number;
  /** Where large bodies go while they arrive; null, they wait here. */
  readonly ahead: Ahead | null;
}

export function createRoutes(deps: RouteDeps): RouteTable {
  let document: object | null = null;
  const own = ownRoutes(deps, {
    post: (request, response, peer) => answerPost(deps, request, response, peer),
    openrpc: () => deps.rpc.openrpc(),
    openapi: () => {
      document ??= openapiDocument([...own.flatMap(operationsOf), ...deps.rpc.operations()], deps);
      return document;
    },
  });
  return withFaces(new Map(own.map((route) => [route.path, handlersOf(route)])), deps);
}

function handlersOf({ GET, POST }: OwnRoute): Route {
  return { ...(GET ? { GET } : {}), ...(POST ? { POST } : {}) };
}

function operationsOf({ path, ...verbs }: OwnRoute): Operation[] {
  const one = (verb: 'GET' | 'POST', described: Described | undefined): Operation[] =>
    described === undefined ? [] : [{ ...described.about, verb, path, access: described.access }];
  return [...one('GET', verbs.GET), ...one('POST', verbs.POST)];
}

const verbs = ['GET', 'POST', 'DELETE'] as const;
/** A face whose path ends with a name in braces answers all paths that begin as it does. */
const TAIL = /\{\w+\}$/;
/** What `curl -d` sends when it is not told another type. */
const FORM_TYPE = 'application/x-www-form-urlencoded';

/** The table with the faces, which may share a path when their verbs differ. */
function withFaces(exact: Map<string, Route>, deps: RouteDeps): RouteTable {
  const begun = new Map<string, Route>();
  for (const face of deps.rpc.faces()) {
    const { path, verb, dialect } = face;
    const prefix = path.replace(TAIL, '');
    const table = prefix === path ? exact : begun;
    const route = table.get(prefix);
    if (route?.[verb] !== undefined) throw new Error(`two things answer ${verb} ${path}`);
    const answer: Handler = (request, response, peer) => answerCall(deps, face, request, response, peer);
    table.set(prefix, { ...route, [verb]: { access: face.access, answer }, dialect });
  }
  const beginning = (path: string) => [...begun].find(([prefix]) => path.length > prefix.length && path.startsWith(prefix));
  return {
    get: (path) => exact.get(path) ?? beginning(path)?.[1],
    nameOf: (path) => (exact.has(path) ? path : (beginning(path)?.[0] ?? 'none')),
    served: () => [...exact, ...begun].flatMap(([path, route]) => verbs.filter((verb) => route[verb]).map((verb) => `${verb} ${path}`)),
  };
}

async function answerPost(deps: RouteDeps, request: IncomingMessage, response: ServerResponse, peer: Peer): Promise<void> {
  const refuse = (error: HttpError) => sendErrorAndClose(request, response, error);
  if (!takesType(request, refuse)) return;
  const body = await wholeBody(deps, request, response, { peer, refuse });
  if (body === null) return;
  await sendReply(response, await deps.rpc.handlePost(body, callerOf(request, response, peer)));
}

/** A method at a path of its own. One without params reads no body: benchmarks send one of theirs along, which says nothing to us. */
async function answerCall(deps: RouteDeps, face: Face, request: IncomingMessage, response: ServerResponse, peer: Peer): Promise<void> {
  const refuse = (error: HttpError) => sendErrorAndClose(request, response, error, face.dialect);
  if (face.reads && face.verb !== 'GET' && !takesType(request, refuse, face.dialect.formTyped === true)) return;
  const body = await wholeBody(deps, request, response, { peer, refuse });
  if (body === null) return;
  const [path = '', ...rest] = (request.url ?? '').split('?');
  const tail = tailOf(face, path);
  if (tail === null) {
    deps.ahead?.drop(body);
    refuse({ status: 400, message: 'The path holds a percent sign that escapes nothing.' });
    return;
  }
  const query = new URLSearchParams(rest.join('?'));
  const sinks = (format: StreamFormat) => new StreamDoor(response, format);
  await sendReply(response, await deps.rpc.handleCall(face.id, { ...callerOf(request, response, peer), query, tail, body, sinks }));
}

/** What the path has where the face's has a name in braces; null when it cannot be read. */
function tailOf({ path: pattern }: Face, path: string): string | null {
  if (!TAIL.test(pattern)) return '';
  try {
    return decodeURIComponent(path.slice(pattern.replace(TAIL, '').length));
  } catch {
    return null;
  }
}

/** To be called when the body has just been read. */
function callerOf(request: IncomingMessage, response: ServerResponse, peer: Peer): PostOptions {
  return {
    scopes: peer.scopes,
    signal: untilGone(response, peer),
    client: request.socket,
    arrivalMs: arrivalTime(),
    trace: traceOf(request),
  };
}

/** The headers of the W3C's Trace Context. */
function traceOf({ headers: { traceparent, tracestate } }: IncomingMessage): TraceHeaders | null {
  if (typeof traceparent !== 'string') return null;
  return { parent: traceparent, ...(tracestate === undefined ? {} : { state: String(tracestate) }) };
}

async function sendReply(response: ServerResponse, reply: PostReply): Promise<void> {
  if (reply.streamed) return;
  const retry = reply.retryAfterS === undefined ? {} : { 'retry-after': String(reply.retryAfterS) };
  const headers = { ...reply.headers, ...retry };
  if (reply.slices === undefined) send(response, { ...reply, headers });
  else await sendSlices(response, reply.status, reply.slices);
}

/**
 * False when it was refused: the body does not say that it is plain JSON, which a page of another site cannot make a browser say without
 * asking. `formTyped`: a program may call it a form (Dialect.formTyped).
 */
function takesType(request: IncomingMessage, sendRefusal: (error: HttpError) => void, formTyped = false): boolean {
  const refuse = (message: string): false => {
    sendRefusal({ status: 415, message });
    return false;
  };
  const [type = '', ...parameters] = (request.headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters.map((p) => p.trim()).find((p) => p.startsWith('charset='));
  const good = type.trim() === 'application/json' || (formTyped && type.trim() === FORM_TYPE && !mayBePage(request.headers));
  if (!good || !(charset === undefined || /^charset="?utf-8"?$/.test(charset))) {
    return refuse('Send the body in UTF-8 with the header "content-type: application/json".');
  }
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } = request.headers;
  // Node looks only for the chunks, whatever else was done to the body before.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') return refuse('A compressed body is not accepted.');
  return true;
}

/** The body, or null when it was refused or the client has left. */
async function wholeBody(
  deps: RouteDeps,
  request: IncomingMessage,
  response: ServerResponse,
  { peer, refuse }: { readonly peer: Peer; readonly refuse: (error: HttpError) => void },
): Promise<Pieces | null> {
  try {
    return await readBody(request, response, { limit: deps.maxBodyBytes, digest: peer.bodyDigest, ahead: deps.ahead });
  } catch (error) {
    if (error instanceof BodyError) refuse(error);
    return null;
  }
}

/** Fires when the client leaves before it was answered, or may no longer ask; its calls are then cancelled. Afterwards nobody listens. */
function untilGone(response: ServerResponse, peer: Peer): AbortSignal {
  const gone = new AbortController();
  const forget = peer.onEnd(() => gone.abort());
  response.once('close', () => {
    forget();
    gone.abort();
  });
  return gone.signal;
}
