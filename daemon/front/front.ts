/**
 * Joins engine, JSON-RPC, WebSocket and HTTP into the front of the daemon. Main thread; made once, at start-up, by daemon.ts.
 */

import type { Server } from 'node:http';
import type { Log } from '../../actors/runtime/log.js';
import type { Config } from '../../config/schema.js';
import { RpcConnection } from '../../rpc/connection.js';
import type { RpcDeps } from '../../rpc/context.js';
import type { Models } from '../../rpc/models.js';
import type { Observe } from '../../rpc/observe.js';
import type { ModelHub } from '../../rpc/schemas/hub.js';
import type { Profiler } from '../../rpc/schemas/profile.js';
import { createRpcServer } from '../../rpc/server.js';
import type { Auth } from './auth/auth.js';
import type { GateRules } from './gate.js';
import { createHttpServer, defaultHttpTimeouts, type HttpTimeouts } from './http.js';
import { createRoutes, type RouteDeps } from './http-routes.js';
import { readPage } from './pages/page.js';
import type { Traffic } from './traffic.js';
import { createSockets, type Sockets } from './websocket.js';

export interface FrontDeps {
  readonly config: Config;
  readonly models: Models;
  /** What probes are told. */
  readonly probed: RouteDeps['probed'];
  readonly profiler: Profiler;
  readonly hub: ModelHub;
  /** What the front counts of its own. */
  readonly traffic: Traffic;
  /** Times to the first token, for stats. */
  firstTokens: NonNullable<RpcDeps['firstTokens']>;
  /** What /metrics answers. */
  scrape: RouteDeps['metrics']['scrape'];
  /** Told of each call that generates. */
  readonly observe?: Observe;
  readonly auth: Auth;
  readonly log: Log;
  readonly version: string;
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly timeouts?: HttpTimeouts | undefined;
  /** The gate's rules now. */
  rules(): GateRules;
  /** False once the daemon stops. */
  accepting(): boolean;
  /** A client asked the daemon to drain and stop. */
  onDrain(): void;
}

export interface Front {
  readonly sockets: Sockets;
  /** An HTTP server with all handlers, for one listener. */
  createServer(): Server;
  /** From now on new calls are refused; every WebSocket client is told. */
  announceShutdown(): void;
}

/** Connections beyond server.max_connections, so that health probes answer when all WebSockets are taken. */
const SPARE_CONNECTIONS = 64;

export function createFront(deps: FrontDeps): Front {
  const { config, log, version } = deps;
  const rpc = createRpcServer({
    models: deps.models,
    profiler: deps.profiler,
    hub: deps.hub,
    config,
    version,
    log,
    startedAt: deps.startedAt,
    onDrain: deps.onDrain,
    firstTokens: deps.firstTokens,
    onError: (code) => deps.traffic.failed(code),
    ...(deps.observe === undefined ? {} : { observe: deps.observe }),
  });
  const sockets = createSockets({
    config: config.server,
    log,
    ahead: rpc.large,
    openHandler: (wire, options) => new RpcConnection(rpc, wire, options),
  });
  const routes = createRoutes({
    probed: deps.probed,
    rpc,
    metrics: { open: config.metrics.open, scrape: deps.scrape },
    version,
    auth: deps.auth.modes,
    page: readPage,
    maxBodyBytes: config.server.max_message_bytes,
    ahead: rpc.large,
    webUi: config.server.web_ui,
    accepting: deps.accepting,
  });
  return {
    sockets,
    createServer: () =>
      createHttpServer({
        routes,
        auth: deps.auth,
        rules: deps.rules,
        log,
        maxConnections: config.server.max_connections + SPARE_CONNECTIONS,
        maxRequests: config.server.max_requests_per_connection,
        traffic: deps.traffic,
        timeouts: deps.timeouts ?? defaultHttpTimeouts,
        accepting: deps.accepting,
        upgrade: sockets.upgrade,
      }),
    announceShutdown() {
      rpc.shutdown();
      sockets.announceShutdown();
    },
  };
}
