/** The HTTP and WebSocket front of the daemon on a free port with a handler that echoes, without engine and rpc. */
import { isUtf8 } from 'node:buffer';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';
import { silentLog } from '../../../actors/runtime/log.js';
import type { Auth } from '../../../daemon/front/auth/auth.js';
import { gateRules } from '../../../daemon/front/gate.js';
import { createHttpServer, defaultHttpTimeouts, type HttpTimeouts } from '../../../daemon/front/http.js';
import { createRoutes } from '../../../daemon/front/http-routes.js';
import { readPage } from '../../../daemon/front/pages/page.js';
import { Traffic } from '../../../daemon/front/traffic.js';
import { createSockets, type Encoding, type MessageHandler, type Sockets } from '../../../daemon/front/websocket.js';
import { type Ahead, joined, type Pieces, piecesOf } from '../../../rpc/decode/pieces.js';
import { openai } from '../../../rpc/dialects/openai/errors.js';
import type { Face } from '../../../rpc/face.js';
import type { Scopes } from '../../../rpc/scope.js';
import type { Slices } from '../../../rpc/slices.js';
import type { Wire } from '../../../rpc/wire.js';
import { eventually } from '../../helpers/eventually.js';
import { type ConfigChanges, testConfig } from '../../helpers/test-config.js';
import { openToAll } from './token-auth.js';

/** A face of which only the front is asked. */
function face(verb: Face['verb'], path: string, id: string, reads: boolean): Face {
  const about = { methods: [], group: 'Daemon', summary: '', params: z.object({}), result: z.object({}), examples: [] } as const;
  const access = id.startsWith('profile.') ? 'admin' : 'infer';
  return { id, verb, path, reads, access, dialect: openai, ask: () => ({ method: id, params: {} }), about };
}

/** A handler that writes down what happens to it; its answer to each message is up to `onReceive`. */
export class RecordingHandler implements MessageHandler {
  readonly wire: Wire;
  readonly options: { readonly encoding: Encoding; readonly scopes: Scopes };
  readonly events: string[] = [];
  pending = 0;
  readonly #onReceive: (handler: RecordingHandler, data: Uint8Array) => void;

  constructor(wire: Wire, options: { encoding: Encoding; scopes: Scopes }, onReceive: FrontOptions['onReceive']) {
    this.wire = wire;
    this.options = options;
    const echo = (_: unknown, data: Uint8Array) => wire.send(options.encoding === 'json' ? Buffer.from(data).toString() : data);
    this.#onReceive = onReceive ? (_, data) => onReceive.call(this, data) : echo;
  }
  receivePieces(pieces: Pieces): boolean {
    const data = joined(pieces);
    if (this.options.encoding === 'json' && !isUtf8(data)) return false;
    this.#note(this.options.encoding === 'json' ? 'text' : 'bytes');
    this.#onReceive(this, data);
    return true;
  }
  writable(): void {
    this.#note('writable');
  }
  close(): void {
    this.#note('close');
  }
  shutdown(): void {
    this.#note('shutdown');
  }
  /** Resolves when `event` has happened. */
  until(event: string): Promise<void> {
    return eventually(event, () => this.events.includes(event));
  }
  #note(event: string): void {
    this.events.push(event);
  }
}

export interface Front {
  readonly port: number;
  readonly server: Server;
  readonly sockets: Sockets;
  readonly traffic: Traffic;
  readonly handlers: RecordingHandler[];
  /** Bodies that reached JSON-RPC. */
  readonly posts: string[];
  healthy: boolean;
  accepting: boolean;
  close(): Promise<void>;
}

export interface FrontOptions {
  readonly config?: ConfigChanges;
  readonly auth?: Auth;
  readonly timeouts?: Partial<HttpTimeouts>;
  readonly onReceive?: (this: RecordingHandler, data: Uint8Array) => void;
  /** A large answer to each post. */
  readonly postSlices?: () => Slices;
  /** Time for one WebSocket message to arrive whole. */
  readonly messageMs?: number;
  /** Where large messages and bodies go while they arrive. */
  readonly ahead?: Ahead;
  /** Listen on this Unix socket instead of a port. */
  readonly path?: string;
}

export async function startFront(options: FrontOptions = {}): Promise<Front> {
  const config = testConfig(options.config);
  const handlers: RecordingHandler[] = [];
  const posts: string[] = [];
  const sockets = createSockets({
    config: config.server,
    log: silentLog,
    ahead: options.ahead ?? null,
    ...(options.messageMs === undefined ? {} : { messageMs: options.messageMs }),
    openHandler(wire, asked) {
      handlers.push(new RecordingHandler(wire, asked, options.onReceive));
      return handlers[handlers.length - 1]!; // just pushed
    },
  });
  const accepting = () => front.accepting;
  const routes = createRoutes({
    probed: { healthy: () => front.healthy, state: () => (front.healthy ? 'ready' : 'starting'), requests: () => [] },
    rpc: {
      handlePost: async (body) => {
        posts.push(Buffer.from(joined(piecesOf(body))).toString());
        if (options.postSlices !== undefined) return { status: 200, body: null, slices: options.postSlices() };
        return posts[posts.length - 1] === '"note"' ? { status: 204, body: null } : { status: 200, body: '{"jsonrpc":"2.0"}' };
      },
      handleCall: async (name, { query, body } = {}) => {
        posts.push(`${name} ?${query} ${Buffer.from(joined(piecesOf(body ?? []))).toString()}`);
        if (options.postSlices !== undefined) return { status: 200, body: null, slices: options.postSlices() };
        return { status: 200, body: '{}' };
      },
      faces: () => [
        face('POST', '/start_profile', 'profile.start', false),
        face('POST', '/stop_profile', 'profile.stop', false),
        face('GET', '/things', 'things.list', true),
        face('POST', '/things', 'things.make', true),
      ],
      openrpc: () => ({ openrpc: '1.3.2' }),
      operations: () => [],
    },
    ahead: options.ahead ?? null,
    metrics: { open: false, scrape: async () => ({ type: 'text/plain', body: 'figures' }) },
    version: '0.0.0',
    auth: [],
    page: readPage,
    maxBodyBytes: config.server.max_message_bytes,
    webUi: config.server.web_ui,
    accepting,
  });
  const rules = gateRules(config.auth);
  const traffic = new Traffic();
  const server = createHttpServer({
    routes,
    auth: options.auth ?? openToAll,
    rules: () => rules,
    log: silentLog,
    maxConnections: config.server.max_connections + 64,
    maxRequests: config.server.max_requests_per_connection,
    traffic,
    timeouts: { ...defaultHttpTimeouts, ...options.timeouts },
    accepting,
    upgrade: sockets.upgrade,
  });
  await new Promise<void>((resolve) => {
    if (options.path === undefined) server.listen(0, '127.0.0.1', resolve);
    else server.listen(options.path, resolve);
  });
  const at = server.address();
  const front: Front = {
    port: typeof at === 'string' ? 0 : (at as AddressInfo).port,
    server,
    sockets,
    traffic,
    handlers,
    posts,
    healthy: true,
    accepting: true,
    async close() {
      await sockets.closeAll(0);
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
  return front;
}

/** Runs a test with a front of its own. */
export async function withFront(options: FrontOptions, run: (front: Front) => Promise<void>): Promise<void> {
  const front = await startFront(options);
  try {
    await run(front);
  } finally {
    await front.close();
  }
}
