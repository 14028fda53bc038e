/**
 * What answers at which path: the probes and documents of this file, JSON-RPC, and every method whose value has an HTTP face. A route
 * lists its verbs; `open` ones need no token (health probes).
 * Handlers run on the main thread, after gate and token.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EngineClient } from '../../actors/client-types.js';
import type { MethodRoute } from '../../rpc/method.js';
import type { TraceHeaders } from '../../rpc/observe.js';
import type { PostOptions, PostReply, RpcServer } from '../../rpc/server.js';
import { BodyError, readBody, send, sendErrorAndClose, sendJson, sendSlices } from './http-reply.js';
import { SseDoor } from './sse.js';

/** What the gate found out about the sender. */
export interface Peer {
  /** A web page, ours or one of a listed origin: it gets no admin scope. */
  readonly browser: boolean;
}

export type Handler = (request: IncomingMessage, response: ServerResponse, peer: Peer) => void | Promise<void>;

export interface Route {
  /** Answers HEAD as well. */
  readonly GET?: Handler;
  readonly POST?: Handler;
  /** Answered without a token. */
  readonly open?: true;
}
export interface RouteTable {
  /** The route of a path without its query. */
  get(path: string): Route | undefined;
  /** The path of its route as the table has it, or "none". */
  nameOf(path: string): string;
}

export interface RouteDeps {
  readonly engine: Pick<EngineClient, 'healthy' | 'state' | 'requests'>;
  /** JSON-RPC over HTTP, and the description of its methods. */
  readonly rpc: Pick<RpcServer, 'handlePost' | 'handleCall' | 'routes' | 'openrpc'>;
  /** The answer of /metrics, and whether it needs no token. */
  readonly metrics: { readonly open: boolean; scrape(): Promise<{ readonly type: string; readonly body: string }> };
  readonly version: string;
  readonly maxBodyBytes: number;
  /** Show the page at `/`. */
  readonly webUi: boolean;
  /** False once the daemon stops. */
  accepting(): boolean;
}

const RETRY_AFTER_SECONDS = '1';

export function createRoutes(deps: RouteDeps): RouteTable {
  const { engine } = deps;
  const post: Handler = (request, response, peer) => answerPost(deps, request, response, peer);
  const state = () => (deps.accepting() ? engine.state() : 'draining');
  const page: Route = deps.webUi
    ? { GET: (_, response) => send(response, { status: 200, type: 'text/plain', body: howToConnect(deps.version) }), POST: post }
    : { POST: post };
  const alive: Handler = (_, response) => status(response, engine.healthy(), 'ok', state() === 'ready' ? 'unhealthy' : state());
  const metrics: Handler = async (_, response) => send(response, { status: 200, ...(await deps.metrics.scrape()) });
  const own: readonly (readonly [string, Route])[] = [
    ['/', page],
    ['/rpc', { POST: post }],
    ['/health', { open: true, GET: alive }],
    ['/ready', { open: true, GET: (_, response) => status(response, state() === 'ready', 'ready', state()) }],
    ['/ping', { open: true, GET: alive, POST: alive }],
    ['/load', { GET: (_, response) => sendJson(response, 200, { server_load: engine.requests().length }) }],
    ['/metrics', { ...(deps.metrics.open ? { open: true } : {}), GET: metrics }],
    ['/version', { open: true, GET: (_, response) => sendJson(response, 200, { name: 'inferd', version: deps.version, protocol: 1 }) }],
    ['/openrpc.json', { GET: (_, response) => sendJson(response, 200, deps.rpc.openrpc()) }],
  ];
  return withFaces(new Map(own), deps);
}

/** A face whose path ends with a name in braces answers all paths that begin as it does. */
const TAIL = /\{\w+\}$/;

/** The table with the HTTP faces of methods, which may share a path when their verbs differ. */
function withFaces(exact: Map<string, Route>, deps: RouteDeps): RouteTable {
  const begun = new Map<string, Route>();
  for (const face of deps.rpc.routes()) {
    const { path, verb } = face;
    const prefix = path.replace(TAIL, '');
    const table = prefix === path ? exact : begun;
    const route = table.get(prefix);
    if (route?.[verb] !== undefined) throw new Error(`two things answer ${verb} ${path}`);
    const answer: Handler = (request, response, peer) => answerCall(deps, face, request, response, peer);
    table.set(prefix, verb === 'GET' ? { ...route, GET: answer } : { ...route, POST: answer });
  }
  const beginning = (path: string) => [...begun].find(([prefix]) => path.length > prefix.length && path.startsWith(prefix));
  return {
    get: (path) => exact.get(path) ?? beginning(path)?.[1],
    nameOf: (path) => (exact.has(path) ? path : (beginning(path)?.[0] ?? 'none')),
  };
}

function status(response: ServerResponse, good: boolean, yes: string, no: string): void {
  if (good) sendJson(response, 200, { status: yes });
  else sendJson(response, 503, { status: no }, { 'retry-after': RETRY_AFTER_SECONDS });
}

async function answerPost(deps: RouteDeps, request: IncomingMessage, response: ServerResponse, peer: Peer): Promise<void> {
  if (!takesType(request, response)) return;
  const body = await wholeBody(deps, request, response);
  if (body === null) return;
  await sendReply(response, await deps.rpc.handlePost(body, callerOf(request, response, peer)));
}

/** A method at a path of its own. One without params reads no body: benchmarks send one of theirs along, which says nothing to us. */
async function answerCall(
  deps: RouteDeps,
  face: MethodRoute,
  request: IncomingMessage,
  response: ServerResponse,
  peer: Peer,
): Promise<void> {
  if (face.params !== undefined && face.verb === 'POST' && !takesType(request, response)) return;
  const body = await wholeBody(deps, request, response);
  if (body === null) return;
  const [path = '', ...rest] = (request.url ?? '').split('?');
  const tail = tailOf(face, path);
  if (tail === null) {
    sendErrorAndClose(request, response, { status: 400, message: 'The path holds a percent sign that escapes nothing.' });
    return;
  }
  const query = new URLSearchParams(rest.join('?'));
  const sinks = new SseDoor(response);
  await sendReply(response, await deps.rpc.handleCall(face.method, { ...callerOf(request, response, peer), query, tail, body, sinks }));
}

/** What the path has where the face's has a name in braces; null when it cannot be read. */
function tailOf({ path: pattern }: MethodRoute, path: string): string | null {
  if (!TAIL.test(pattern)) return '';
  try {
    return decodeURIComponent(path.slice(pattern.replace(TAIL, '').length));
  } catch {
    return null;
  }
}

function callerOf(request: IncomingMessage, response: ServerResponse, peer: Peer): PostOptions {
  return { admin: !peer.browser, signal: untilGone(response), client: request.socket, trace: traceOf(request) };
}

/** The headers of the W3C's Trace Context. */
function traceOf({ headers: { traceparent, tracestate } }: IncomingMessage): TraceHeaders | null {
  if (typeof traceparent !== 'string') return null;
  return { parent: traceparent, ...(tracestate === undefined ? {} : { state: String(tracestate) }) };
}

async function sendReply(response: ServerResponse, reply: PostReply): Promise<void> {
  if (reply.streamed) return;
  const headers = reply.retryAfterS === undefined ? {} : { 'retry-after': String(reply.retryAfterS) };
  if (reply.slices === undefined) send(response, { ...reply, headers });
  else await sendSlices(response, reply.status, reply.slices);
}

/** False when it was refused: the body is no plain JSON. */
function takesType(request: IncomingMessage, response: ServerResponse): boolean {
  const refuse = (message: string): false => {
    sendErrorAndClose(request, response, { status: 415, message });
    return false;
  };
  const [type = '', ...parameters] = (request.headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters.map((p) => p.trim()).find((p) => p.startsWith('charset='));
  if (type.trim() !== 'application/json' || !(charset === undefined || /^charset="?utf-8"?$/.test(charset))) {
    return refuse('Send the body in UTF-8 with the header "content-type: application/json".');
  }
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') return refuse('A compressed body is not accepted.');
  return true;
}

/** The body, or null when it was refused or the client has left. */
async function wholeBody(deps: RouteDeps, request: IncomingMessage, response: ServerResponse): Promise<Uint8Array | null> {
  try {
    return await readBody(request, response, deps.maxBodyBytes);
  } catch (error) {
    if (error instanceof BodyError) sendErrorAndClose(request, response, error);
    return null;
  }
}

/** Fires when the client leaves before it was answered; its calls are then cancelled. Afterwards nobody listens. */
function untilGone(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  return gone.signal;
}

function howToConnect(version: string): string {
  return [
    `inferd ${version}`,
    '',
    'JSON-RPC 2.0 over WebSocket at this address, one message a text frame:',
    '  {"jsonrpc":"2.0","id":1,"method":"chat.completions.create","params":{"messages":[{"role":"user","content":"Hello"}],"stream":true}}',
    'The same messages by HTTP: POST /rpc with content-type application/json (no streaming).',
    '',
    'For clients of OpenAI the base address is this one with /v1:',
    'POST /v1/chat/completions, /v1/completions   streamed when the body says "stream": true',
    'GET /v1/models, /v1/models/NAME',
    '',
    'POST /tokenize, /detokenize',
    'GET /openrpc.json  every method with its parameters',
    'GET /health        200 while the engine makes progress',
    'GET /ready         200 while requests are taken',
    'GET /metrics       figures for Prometheus',
    'GET /version       version of this daemon',
    'POST /start_profile, /stop_profile  record a timeline for Perfetto',
    '',
  ].join('\n');
}
