/** Puts a daemon's fleet together: catalogue, memory of this machine, metrics, queue. Main thread; called by daemon.ts. */
import type { RequestIds } from '../../actors/client-ids.js';
import type { EngineState, StartProgress } from '../../actors/client-types.js';
import type { Log } from '../../actors/runtime/log.js';
import type { MainConfig } from '../../config/model-file.js';
import type { Config } from '../../config/schema.js';
import { loadAddon } from '../../native/index.js';
import { demoProfile } from '../demo-profile.js';
import type { Ending } from '../life/child-actor.js';
import type { startEngine } from '../life/engine.js';
import { bestBackend } from '../life/topology.js';
import type { Metrics } from '../metrics/metrics.js';
import { Catalogue, type FoundModel } from './catalogue.js';
import { Fleet } from './fleet.js';
import type { MemoryProbe } from './memory.js';

export interface OpenFleet {
  readonly main: MainConfig;
  /** The default model. */
  readonly first: FoundModel;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  readonly ids: RequestIds;
  readonly metrics: Metrics;
  readonly startEngine: typeof startEngine;
  /** [models] now. */
  settings(): Config['models'];
  onProgress(progress: StartProgress): void;
  onState(state: EngineState): void;
  onGaveUp(ending: Ending): void;
}

/** Nothing is loaded before `start`. */
export function openFleet(options: OpenFleet): Fleet {
  const { main, first, env, metrics, settings } = options;
  const { max_queue, queue_timeout_s } = main.config.scheduler;
  return new Fleet({
    ...options,
    catalogue: new Catalogue({ main: { ...main, profile: demoProfile() }, first, env, directories: () => settings().directories }),
    // A queue of none still lets those wait who wait for a model to be loaded.
    queue: { maxWaiting: Math.max(1, max_queue), timeoutMs: queue_timeout_s * 1000 },
    memory: { probe: machine },
    deviceOf: (config) => (config.inference.device === 'auto' ? bestBackend(config) : config.inference.device),
    metered: (found, engine) => metrics.metered({ ...found, engine }),
    unmetered: (name) => metrics.detach(name),
  });
}

const machine: MemoryProbe = {
  hostFree: () => loadAddon().systemInfo().freeMemoryBytes,
  resident: () => process.memoryUsage.rss(),
  deviceTotal: (id) => loadAddon().systemInfo().cuda.devices[id]?.totalBytes ?? 0,
};
