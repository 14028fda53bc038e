/** The profiler of a daemon's or program's engine, as the configuration wants it. Main thread; made by the daemon and by the library. */
import { join, resolve } from 'node:path';
import type { Log } from '../../actors/runtime/log.js';
import { expandHome, inferdPaths } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import type { EngineHandle } from '../life/engine.js';
import { packageVersion } from '../version.js';
import { EngineProfiler } from './profiler.js';

/** Where profiles are written. */
export function profileFolder({ profile: { directory } }: Config, env: NodeJS.ProcessEnv): string {
  return directory === null ? join(inferdPaths(env).stateDir, 'profiles') : resolve(expandHome(directory, env));
}

export interface ProfilerPlace {
  readonly config: Config;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
}

/** `engine`: what is recorded when a recording begins; null while there is none. */
export function engineProfiler(engine: () => EngineHandle | null, { config, env, log }: ProfilerPlace): EngineProfiler {
  const { max_seconds, max_events } = config.profile;
  return new EngineProfiler({
    directory: profileFolder(config, env),
    maxSeconds: max_seconds,
    maxEvents: max_events,
    version: packageVersion(),
    log,
    recorders: () => engine()?.recorders() ?? [],
    state: () => engine()?.client.state() ?? 'starting',
    model: () => engine()?.client.model() ?? null,
  });
}
