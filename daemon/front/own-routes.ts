/**
 * The routes that no method answers: JSON-RPC itself, probes, figures, documents and pages. One table, each verb with what the OpenAPI
 * document says about it. Main thread; used by http-routes.ts.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EngineClient } from '../../actors/client-types.js';
import { ownOperations } from './docs/own-operations.js';
import { send, sendJson } from './http-reply.js';
import { type Page, type PageName, pageHeaders } from './pages/page.js';
import type { Handler, OwnRoute } from './route.js';

export interface OwnRouteDeps {
  /** What probes are told of the engines. */
  readonly probed: Pick<EngineClient, 'healthy' | 'state' | 'requests'>;
  /** The answer of /metrics, and whether it needs no token. */
  readonly metrics: { readonly open: boolean; scrape(): Promise<{ readonly type: string; readonly body: string }> };
  readonly version: string;
  /** Show the pages at `/` and `/docs`. */
  readonly webUi: boolean;
  /** A page; read on first use. */
  page(name: PageName): Page;
  /** False once the daemon stops. */
  accepting(): boolean;
}

/** What the routes of this file need of the others. */
export interface OtherAnswers {
  /** JSON-RPC over HTTP. */
  readonly post: Handler;
  readonly openrpc: () => object;
  readonly openapi: () => object;
}

const RETRY_AFTER_SECONDS = '1';

export function ownRoutes(deps: OwnRouteDeps, { post, openrpc, openapi }: OtherAnswers): readonly OwnRoute[] {
  const { probed, version } = deps;
  const about = ownOperations;
  const state = () => (deps.accepting() ? probed.state() : 'draining');
  const alive: Handler = (_, response) => status(response, probed.healthy(), 'ok', state() === 'ready' ? 'unhealthy' : state());
  const ready: Handler = (_, response) => status(response, state() === 'ready', 'ready', state());
  const metrics: Handler = async (_, response) => send(response, { status: 200, ...(await deps.metrics.scrape()) });
  const page =
    (name: PageName): Handler =>
    (_, response) => {
      const { html, policy } = deps.page(name);
      send(response, { status: 200, type: 'text/html', body: html, headers: pageHeaders(policy) });
    };
  const root: Handler = (request, response, peer) => {
    response.setHeader('vary', 'origin, accept');
    if (wantsHtml(request)) return page('home')(request, response, peer);
    return send(response, { status: 200, type: 'text/plain', body: howToConnect(version) });
  };
  const json =
    (value: () => object): Handler =>
    (_, response) =>
      sendJson(response, 200, value());
  const figures = deps.metrics.open ? 'open' : 'metrics';
  const pages: readonly OwnRoute[] = [{ path: '/docs', GET: { access: 'open', answer: page('docs'), about: about.docs } }];
  return [
    {
      path: '/',
      ...(deps.webUi ? { GET: { access: 'open', answer: root, about: about.root } } : {}),
      POST: { access: 'any', answer: post, about: about.rpcAtRoot },
    },
    { path: '/rpc', POST: { access: 'any', answer: post, about: about.rpc } },
    { path: '/health', GET: { access: 'open', answer: alive, about: about.health } },
    { path: '/ready', GET: { access: 'open', answer: ready, about: about.ready } },
    {
      path: '/ping',
      GET: { access: 'open', answer: alive, about: about.ping },
      POST: { access: 'open', answer: alive, about: about.pingByPost },
    },
    { path: '/load', GET: { access: 'metrics', answer: json(() => ({ server_load: probed.requests().length })), about: about.load } },
    { path: '/metrics', GET: { access: figures, answer: metrics, about: about.metrics } },
    { path: '/version', GET: { access: 'open', answer: json(() => ({ name: 'inferd', version, protocol: 1 })), about: about.version } },
    { path: '/openrpc.json', GET: { access: 'any', answer: json(openrpc), about: about.openrpc } },
    { path: '/openapi.json', GET: { access: 'any', answer: json(openapi), about: about.openapi } },
    ...(deps.webUi ? pages : []),
  ];
}

function status(response: ServerResponse, good: boolean, yes: string, no: string): void {
  if (good) sendJson(response, 200, { status: yes });
  else sendJson(response, 503, { status: no }, { 'retry-after': RETRY_AFTER_SECONDS });
}

/** Browsers name HTML among what they accept; other programs accept anything, or say nothing. */
function wantsHtml({ headers }: IncomingMessage): boolean {
  return /(?:^|[\s,])text\/html(?:[\s;,]|$)/i.test(headers.accept ?? '');
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
    'POST /v1/chat/completions, /v1/completions, /v1/responses   streamed when the body says "stream": true',
    'POST /v1/messages, /v1/messages/count_tokens   the same for clients of Anthropic, whose base address is this one',
    'POST /api/chat, /api/generate, /api/embed, GET /api/tags   the same for clients of Ollama',
    'GET /v1/models, /v1/models/NAME',
    '',
    'POST /tokenize, /detokenize',
    'GET /docs          a page for browsers: every route and method, to read and to try',
    'GET /openapi.json  every route with its parameters',
    'GET /openrpc.json  every method with its parameters',
    'GET /health        200 while the engine makes progress',
    'GET /ready         200 while requests are taken',
    'GET /metrics       figures for Prometheus',
    'GET /version       version of this daemon',
    'POST /start_profile, /stop_profile  record a timeline for Perfetto',
    '',
  ].join('\n');
}
