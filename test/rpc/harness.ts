/** A server with a fake engine, and connections whose frames can be read. For all tests of rpc. */

import { RequestIds } from '../../actors/client-ids.js';
import { InferdError } from '../../actors/messages/errors.js';
import { silentLog } from '../../actors/runtime/log.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import { RpcConnection } from '../../rpc/connection.js';
import type { Method } from '../../rpc/method.js';
import { type FixedModel, fixedModels } from '../../rpc/models.js';
import { allScopes, type Scopes } from '../../rpc/scope.js';
import { createRpcServer, type RpcDeps, type RpcServer } from '../../rpc/server.js';
import type { Slices } from '../../rpc/slices.js';
import type { Wire } from '../../rpc/wire.js';
import { FakeEngineClient } from '../helpers/engine/fake-engine-client.js';
import { type ConfigChanges, testConfig } from '../helpers/test-config.js';
import { sendWhole } from '../helpers/wire/wire.js';

const testModel: ModelFolder = {
  path: '/nowhere',
  name: 'fake',
  source: 'folder',
  config: {},
  architecture: 'FakeForCausalLM',
  format: 'BF16',
  vocabSize: 256,
  hiddenSize: 4,
  pooling: { mode: 'last' },
  maxPositions: 4096,
  maxModelLen: 4096,
  maxInputLength: 4095,
  maxTotalTokens: 4096,
  eosTokenIds: [2],
  bosTokenId: 1,
  generation: { temperature: 0.6, top_p: 0.9 },
  sizeBytes: 1000,
};

export class MemoryWire implements Wire {
  readonly frames: (string | Uint8Array)[] = [];
  buffered = 0;
  reading = true;
  onSend: (() => void) | null = null;

  send(data: string | Uint8Array): void {
    this.frames.push(data);
    this.onSend?.();
  }

  sendSlices(slices: Slices, done: () => void): void {
    void sendWhole(slices, (data) => this.send(data)).then(done);
  }

  bufferedBytes(): number {
    return this.buffered;
  }

  setReading(on: boolean): void {
    this.reading = on;
  }

  /** All frames so far as JSON values, taken out. */
  take(): unknown[] {
    return this.frames.splice(0).map((frame) => JSON.parse(frame as string) as unknown);
  }
}

export interface Setup {
  readonly engine: FakeEngineClient;
  readonly server: RpcServer;
  readonly deps: RpcDeps;
  readonly drains: { count: number };
}

export interface SetupOptions {
  readonly auto?: boolean;
  readonly config?: ConfigChanges;
  readonly extra?: readonly Method[];
  readonly log?: RpcDeps['log'];
  readonly profiler?: RpcDeps['profiler'];
  readonly hub?: RpcDeps['hub'];
  /** Models besides the default one. */
  readonly others?: readonly { readonly name: string; readonly engine: FakeEngineClient }[];
  readonly ids?: RequestIds;
}

const refuse = () => Promise.reject(new InferdError('request_failed', 'No profile is being recorded'));
const noProfiler: RpcDeps['profiler'] = { start: refuse, stop: refuse };
const noHub: RpcDeps['hub'] = { pull: refuse, remove: refuse };

function servedBy(engine: FakeEngineClient, model: ModelFolder, config: Config): FixedModel {
  return { engine, model, config };
}

export function setup(options: SetupOptions = {}): Setup {
  const engine = new FakeEngineClient({ auto: options.auto ?? true, ids: options.ids ?? new RequestIds() });
  const drains = { count: 0 };
  const config = testConfig(options.config);
  const others = (options.others ?? []).map((one) => servedBy(one.engine, { ...testModel, name: one.name }, config));
  const deps: RpcDeps = {
    models: fixedModels(servedBy(engine, testModel, config), ...others),
    profiler: options.profiler ?? noProfiler,
    hub: options.hub ?? noHub,
    config,
    version: '0.0.0-test',
    log: options.log ?? silentLog,
    startedAt: Date.now(),
    onDrain: () => {
      drains.count++;
    },
  };
  return { engine, server: createRpcServer(deps, options.extra ?? []), deps, drains };
}

export interface Peer {
  readonly wire: MemoryWire;
  readonly connection: RpcConnection;
  /** Sends a JSON value, or a string as it is. */
  say(message: unknown): void;
  /** Waits until nothing more happens, then takes the frames. */
  hear(): Promise<unknown[]>;
}

/** Who may generate and look, and no more. */
export const guest: { readonly scopes: Scopes } = { scopes: new Set(['infer', 'metrics']) };

/** The value at a path of a parsed message; undefined when there is none. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value;
  for (const key of path) here = typeof here === 'object' && here !== null ? (here as Record<string | number, unknown>)[key] : undefined;
  return here;
}

export function connectPeer(server: RpcServer, options: { readonly scopes?: Scopes } = {}): Peer {
  const wire = new MemoryWire();
  const connection = new RpcConnection(server, wire, { encoding: 'json', scopes: options.scopes ?? allScopes });
  return {
    wire,
    connection,
    say: (message) => connection.receive(typeof message === 'string' ? message : JSON.stringify(message)),
    hear: async () => {
      await settle();
      return wire.take();
    },
  };
}

/** Long enough for promises and for automatic steps of a short answer. */
export async function settle(turns = 40): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
}

export const call = (id: unknown, method: string, params?: unknown) => ({
  jsonrpc: '2.0',
  id,
  method,
  ...(params === undefined ? {} : { params }),
});
export const notify = (method: string, params?: unknown) => ({ jsonrpc: '2.0', method, ...(params === undefined ? {} : { params }) });
export const chat = (text: string, more: object = {}) => ({ messages: [{ role: 'user', content: text }], ...more });
