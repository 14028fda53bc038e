/**
 * The HTTP side of a listener: every request passes gate -> CORS -> route -> token, in this order, then its handler; upgrades pass the
 * same checks before websocket.ts sees them. Runs on the main thread; one server per listener, made by `createHttpServer`.
 *
 * Invariants: every request gets exactly one answer; a request is never read further than the limits allow; nothing is answered with
 * content before the gate has passed it.
 */

import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { errorTable } from '../../actors/messages/errors.js';
import { errorFields, type Log } from '../../actors/runtime/log.js';
import type { HttpVerb } from '../../rpc/method.js';
import { beyondScope, noScopes, suffices } from '../../rpc/scope.js';
import type { Auth } from './auth/auth.js';
import { unnamed } from './auth/credential.js';
import { checkGate, type GateRules, type Sender } from './gate.js';
import { Pipelines } from './http-pipeline.js';
import { type HttpError, refuseSocket, send, sendError, sendErrorAndClose } from './http-reply.js';
import type { RouteTable } from './http-routes.js';
import { LastAnswers, serveWithoutUpgrade, takesOffer, type UpgradeChoice, wantsWebSocket } from './other-upgrade.js';
import type { Peer, Route } from './route.js';
import type { Traffic } from './traffic.js';
import { arrivalTime } from './turn-clock.js';

/** Bounds on clients that send slowly or not at all, ms. */
export interface HttpTimeouts {
  /** All headers of a request must have arrived. */
  readonly headersMs: number;
  /** The whole request must have arrived. */
  readonly requestMs: number;
  /** An idle kept-alive connection is closed. */
  readonly idleMs: number;
  /** How often the three are looked at. */
  readonly checkMs: number;
}

export const defaultHttpTimeouts: HttpTimeouts = { headersMs: 10_000, requestMs: 60_000, idleMs: 15_000, checkMs: 1000 };

export interface HttpDeps {
  readonly routes: RouteTable;
  readonly auth: Auth;
  /** The rules now; a reload changes them. */
  rules(): GateRules;
  readonly log: Log;
  /** Connections of one listener, WebSockets included. */
  readonly maxConnections: number;
  /** Unanswered requests of one connection. */
  readonly maxRequests: number;
  readonly traffic: Traffic;
  readonly timeouts: HttpTimeouts;
  /** False once the daemon stops: connections are then closed after their answer. */
  accepting(): boolean;
  /** Takes over an upgrade that passed gate, route and token. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, peer: Peer): void;
}

/** Paths that answer upgrades. */
const SOCKET_PATHS: ReadonlySet<string> = new Set(['/', '/rpc']);
/** Who asks at an open route: nobody looked. */
const nobody = unnamed(noScopes);
/** A stream of a credential that has ended gets this long to be told, then its connection ends. */
const LAST_WORDS_MS = 1000;
const PREFLIGHT_SECONDS = '600';
const HEADER_NAME = /^[a-z0-9!#$%&'*+.^_`|~-]{1,64}$/;
const MAX_ASKED_HEADERS = 64;

/** Makes one server with all handlers; the caller listens with it and closes it. */
export function createHttpServer(deps: HttpDeps): Server {
  const { timeouts } = deps;
  const options: ServerOptions & UpgradeChoice = {
    headersTimeout: timeouts.headersMs,
    requestTimeout: timeouts.requestMs,
    keepAliveTimeout: timeouts.idleMs,
    connectionsCheckingInterval: timeouts.checkMs,
    // The gate answers a missing Host itself, in our words.
    requireHostHeader: false,
    shouldUpgradeCallback: takesOffer,
  };
  const server: Server & { httpAllowHalfOpen?: boolean } = createServer(options);
  // A client may end its half when it has asked all it wants to ask: it is still answered. (A property of Node's that its types lack.)
  server.httpAllowHalfOpen = true;
  server.maxConnections = deps.maxConnections;
  // Node would leave out the headers behind the 2000th, and the gate has to see each; their bytes are bounded.
  server.maxHeadersCount = 0;
  let unix = false;
  server.on('listening', () => {
    unix = typeof server.address() === 'string';
  });
  deps.traffic.watch(server);
  const answers = new LastAnswers();
  const pipelines = new Pipelines(deps.maxRequests);
  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    arrivalTime(); // a body that came with the headers arrived now, before the gate has looked
    // Such a Node forgets what came behind it (other-upgrade.ts), so the client is to send that again.
    if (request.headers.upgrade !== undefined) response.shouldKeepAlive = false;
    answers.began(response, request);
    response.once('close', () => countAnswer(deps, request, response));
    if (!pipelines.add(request, response)) {
      sendErrorAndClose(request, response, { status: 429, message: tooManyRequests(deps.maxRequests) });
      return;
    }
    askWhetherGone(request, response);
    answer(deps, request, response, unix).catch((error: unknown) => {
      // The client went away while we read or wrote; or a bug, which the log must show.
      if (request.destroyed || response.destroyed) deps.log.debug(errorFields(error), 'an HTTP request ended early');
      else deps.log.error(errorFields(error), 'an HTTP request failed');
      sendErrorAndClose(request, response, { status: 500, message: 'Internal error.' });
    });
  };
  // Each unanswered request of a connection listens to its end.
  server.on('connection', (socket) => socket.setMaxListeners(socket.getMaxListeners() + deps.maxRequests));
  server.on('request', onRequest);
  server.on('checkContinue', onRequest);
  // Others are not known here. Node would refuse them by itself, before the gate and uncounted.
  server.on('checkExpectation', onRequest);
  server.on('upgrade', (request, socket, head) => {
    answers.whenLeft(socket, () => {
      if (wantsWebSocket(request)) admitUpgrade(deps, request, socket, head, unix);
      else serveWithoutUpgrade(server, request, socket, head);
    });
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => answers.refuse(socket, clientFault(error.code)));
  return server;
}

/** Between two questions to a client that ended its half: the first reset is met by the second write, and the network takes its time. */
const ASK_MS = [50, 1000] as const;

/**
 * A client that ended its half may have left altogether: the system tells these apart only when something is sent. So then it is told, now
 * and again, that its request is worked on; from who has left a reset comes back, and the next write closes the response. A stream that has
 * begun finds it out by its own events.
 */
function askWhetherGone(request: IncomingMessage, response: ServerResponse): void {
  const { socket, httpVersionMinor } = request;
  let timer: NodeJS.Timeout | undefined;
  const ask = (nextMs: number): void => {
    if (httpVersionMinor === 0 || response.headersSent || response.destroyed) return;
    response.writeProcessing();
    timer = setTimeout(ask, nextMs, ASK_MS[1]);
  };
  const onEnd = (): void => ask(ASK_MS[0]);
  socket.once('end', onEnd);
  response.once('close', () => {
    clearTimeout(timer);
    socket.off('end', onEnd);
  });
}

function countAnswer({ routes, traffic }: HttpDeps, request: IncomingMessage, response: ServerResponse): void {
  const handler = routes.nameOf(pathOf(request) ?? '');
  traffic.answered(handler, request.method ?? '', response.headersSent ? response.statusCode : errorTable.cancelled.status);
}

function tooManyRequests(limit: number): string {
  return `More than ${limit} requests of this connection are not answered yet (server.max_requests_per_connection).`;
}

async function answer(deps: HttpDeps, request: IncomingMessage, response: ServerResponse, unix: boolean): Promise<void> {
  const close: OutgoingHttpHeaders = deps.accepting() ? {} : { connection: 'close' };
  const verdict = checkGate(request, deps.rules(), unix, acceptedAt(deps, request));
  const path = pathOf(request);
  const route = path === null ? undefined : deps.routes.get(path);
  const refuse = (error: HttpError) => sendErrorAndClose(request, response, error, route?.dialect);
  if (!verdict.ok) {
    refuse(verdict);
    return;
  }
  const cors: OutgoingHttpHeaders = verdict.corsOrigin === null ? {} : { 'access-control-allow-origin': verdict.corsOrigin };
  const headers: OutgoingHttpHeaders = { ...close, ...cors, vary: 'origin' };
  for (const [name, value] of Object.entries(headers)) if (value !== undefined) response.setHeader(name, value);

  if (route === undefined) {
    refuse(nothingAt(path));
    return;
  }
  const method = request.method ?? '';
  if (method === 'OPTIONS') {
    answerOptions(request, response, route, verdict.corsOrigin);
    return;
  }
  const served = method === 'HEAD' ? route.GET : isVerb(method) ? route[method] : undefined;
  if (served === undefined) {
    refuse({ status: 405, message: `This path does not answer ${method}.`, headers: { allow: allowed(route) } });
    return;
  }
  const { access, answer: handler } = served;
  if (access === 'open') {
    await handler(request, response, nobody);
    return;
  }
  const admission = await deps.auth.authorize(request, verdict.sender);
  if (response.destroyed) return; // gone while its signature was checked
  if ('refusal' in admission) {
    refuse(admission.refusal);
    return;
  }
  const { peer } = admission;
  if (!suffices(peer.scopes, access)) {
    refuse({ status: 403, ...beyondScope(access) });
    return;
  }
  endWithCredential(response, peer);
  await handler(request, response, peer);
}

/** Calls and streams are ended by their handlers (http-routes.ts); whatever is still written a moment later is cut off. */
function endWithCredential(response: ServerResponse, peer: Peer): void {
  const forget = peer.onEnd(() => {
    const late = setTimeout(() => response.destroy(), LAST_WORDS_MS);
    response.once('close', () => clearTimeout(late));
  });
  response.once('close', forget);
}

/** Where nobody is asked who he is, an address of this machine must not be enough to get in. */
function acceptedAt({ auth }: HttpDeps, { socket }: IncomingMessage): string | null {
  return auth.modes.length === 0 ? null : (socket.localAddress ?? null);
}

function admitUpgrade(deps: HttpDeps, request: IncomingMessage, socket: Duplex, head: Buffer, unix: boolean): void {
  const verdict = checkGate(request, deps.rules(), unix, acceptedAt(deps, request));
  const path = pathOf(request);
  if (!verdict.ok) refuseSocket(socket, verdict);
  else if (path === null || !SOCKET_PATHS.has(path)) refuseSocket(socket, { status: 404, message: 'There is no WebSocket at this path.' });
  else void admitSocket(deps, request, socket, head, verdict.sender);
}

/** Never rejects. */
async function admitSocket(deps: HttpDeps, request: IncomingMessage, socket: Duplex, head: Buffer, sender: Sender): Promise<void> {
  // Nobody else listens to this connection yet, and an error that nobody hears ends the process.
  const onError = (): void => {};
  socket.on('error', onError);
  const admission = await deps.auth.authorize(request, sender);
  socket.off('error', onError);
  if (socket.destroyed) return;
  if ('refusal' in admission) refuseSocket(socket, admission.refusal);
  else if (!deps.accepting()) refuseSocket(socket, { status: 503, message: 'The daemon is shutting down.' });
  else deps.upgrade(request, socket, head, admission.peer);
}

function nothingAt(path: string | null): HttpError {
  const message = path?.startsWith('/v1/')
    ? 'This part of the HTTP API of OpenAI is not supported; /openrpc.json describes what this daemon can do.'
    : 'There is nothing at this path; /openrpc.json describes what this daemon can do.';
  return { status: 404, message };
}

/** A CORS preflight is granted to listed origins only, and never for reaching from the public internet into a private network. */
function answerOptions(request: IncomingMessage, response: ServerResponse, route: Route, corsOrigin: string | null): void {
  const preflight = request.headers['access-control-request-method'] !== undefined;
  const intoPrivate =
    request.headers['access-control-request-private-network'] !== undefined ||
    request.headers['access-control-request-local-network'] !== undefined;
  if (intoPrivate) {
    response.removeHeader('access-control-allow-origin');
    sendError(response, { status: 403, message: 'Private-network access is not allowed.' });
  } else if (!preflight || corsOrigin === null) {
    send(response, { status: 204, body: null, headers: { allow: allowed(route) } });
  } else {
    const headers = {
      'access-control-allow-methods': allowed(route),
      'access-control-allow-headers': askedHeaders(request),
      'access-control-max-age': PREFLIGHT_SECONDS,
    };
    send(response, { status: 204, body: null, headers });
  }
}

/** OpenAI's clients send a dozen headers of their own (x-stainless-*); a listed origin may send what it asks for. */
function askedHeaders(request: IncomingMessage): string {
  const asked = String(request.headers['access-control-request-headers'] ?? '').split(',');
  const names = asked.map((name) => name.trim().toLowerCase()).filter((name) => HEADER_NAME.test(name));
  return [...new Set(['authorization', 'content-type', ...names])].slice(0, MAX_ASKED_HEADERS).join(', ');
}

const isVerb = (method: string): method is HttpVerb => method === 'GET' || method === 'POST' || method === 'DELETE';

function allowed(route: Route): string {
  const others = (['POST', 'DELETE'] as const).filter((verb) => route[verb]);
  return [...(route.GET ? ['GET', 'HEAD'] : []), ...others, 'OPTIONS'].join(', ');
}

/** Path without query; `null` for anything but origin form ("/..."): an absolute form would name a second host. */
function pathOf(request: IncomingMessage): string | null {
  const url = request.url ?? '';
  return url.startsWith('/') ? (url.split('?', 1)[0] ?? url) : null;
}

function clientFault(code: string | undefined): HttpError {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return { status: 408, message: 'The request took too long to arrive.' };
  if (code === 'HPE_HEADER_OVERFLOW') return { status: 431, message: 'The headers are too large.' };
  return { status: 400, message: 'This is not a valid HTTP request.' };
}
