/**
 * What answers at which path. A route lists its methods; `open` ones need no token (health probes). Adding a route is one entry here, or
 * the `http` of a method value.
 * Handlers run on the main thread, after gate and token.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EngineClient } from '../actors/client-types.js';
import type { RpcServer } from '../rpc/server.js';
import { BodyError, readBody, send, sendErrorAndClose, sendJson, sendSlices } from './http-reply.js';

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
export type RouteTable = ReadonlyMap<string, Route>;

export interface RouteDeps {
  readonly engine: Pick<EngineClient, 'healthy' | 'state'>;
  /** JSON-RPC over HTTP, and the description of its methods. */
  readonly rpc: Pick<RpcServer, 'handlePost' | 'handleCall' | 'routes' | 'openrpc'>;
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
  return new Map<string, Route>([
    ['/', page],
    ['/rpc', { POST: post }],
    [
      '/health',
      { open: true, GET: (_, response) => status(response, engine.healthy(), 'ok', state() === 'ready' ? 'unhealthy' : state()) },
    ],
    ['/ready', { open: true, GET: (_, response) => status(response, state() === 'ready', 'ready', state()) }],
    ['/version', { open: true, GET: (_, response) => sendJson(response, 200, { name: 'inferd', version: deps.version, protocol: 1 }) }],
    ...deps.rpc.routes().map(({ verb, path, method }): readonly [string, Route] => {
      const answer: Handler = (request, response, peer) => answerCall(deps, method, request, response, peer);
      return [path, verb === 'GET' ? { GET: answer } : { POST: answer }];
    }),
    ['/openrpc.json', { GET: (_, response) => sendJson(response, 200, deps.rpc.openrpc()) }],
  ]);
}

function status(response: ServerResponse, good: boolean, yes: string, no: string): void {
  if (good) sendJson(response, 200, { status: yes });
  else sendJson(response, 503, { status: no }, { 'retry-after': RETRY_AFTER_SECONDS });
}

async function answerPost(deps: RouteDeps, request: IncomingMessage, response: ServerResponse, peer: Peer): Promise<void> {
  const [type = '', ...parameters] = (request.headers['content-type'] ?? '').toLowerCase().split(';');
  const charset = parameters.map((p) => p.trim()).find((p) => p.startsWith('charset='));
  if (type.trim() !== 'application/json' || !(charset === undefined || /^charset="?utf-8"?$/.test(charset))) {
    sendErrorAndClose(request, response, {
      status: 415,
      message: 'Send the body in UTF-8 with the header "content-type: application/json".',
    });
    return;
  }
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    sendErrorAndClose(request, response, { status: 415, message: 'A compressed body is not accepted.' });
    return;
  }
  const body = await wholeBody(deps, request, response);
  if (body === null) return;
  const reply = await deps.rpc.handlePost(body, { admin: !peer.browser, signal: untilGone(response), client: request.socket });
  if (reply.slices === undefined) send(response, reply);
  else await sendSlices(response, reply.status, reply.slices);
}

/** A method without params behind a path of its own. Benchmarks send a body of theirs along, which says nothing to us. */
async function answerCall(deps: RouteDeps, method: string, request: IncomingMessage, response: ServerResponse, peer: Peer): Promise<void> {
  if ((await wholeBody(deps, request, response)) === null) return;
  const reply = await deps.rpc.handleCall(method, { admin: !peer.browser, signal: untilGone(response) });
  send(response, reply);
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
    'GET /openrpc.json  every method with its parameters',
    'GET /health        200 while the engine makes progress',
    'GET /ready         200 while requests are taken',
    'GET /version       version of this daemon',
    'POST /start_profile, /stop_profile  record a timeline for Perfetto',
    '',
  ].join('\n');
}
