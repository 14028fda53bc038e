/**
 * Makes an engine for a program: its options checked as those of a configuration file are, then model, actors, protocol and client.
 *
 *   options + file + environment -> Config -> model folder -> engine (loads in its own threads) -> client
 *
 * Nothing listens anywhere, nothing is written to stdout, no signal is handled. Called from programs and from the command line.
 */
import type { StartProgress } from '../../actors/client-types.js';
import { InferdError } from '../../actors/messages/errors.js';
import { type ConfigDefaults, type ConfigValues, type LoadedConfig, loadConfig } from '../../config/load.js';
import { type ModelFolder, resolveModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import { InferdClient } from '../../rpc/client/client.js';
import { fixedModels } from '../../rpc/models.js';
import { createRpcServer } from '../../rpc/server.js';
import { demoProfile } from '../demo-profile.js';
import { EXIT, startExit } from '../exit-code.js';
import { createHub } from '../hub/hub.js';
import { type EngineHandle, startEngine } from '../life/engine.js';
import { createLog } from '../log.js';
import { useNativeBuild } from '../native-build.js';
import { engineProfiler } from '../profile/engine-profiler.js';
import { StartError } from '../start-error.js';
import { openTracing } from '../tracing/tracing.js';
import { packageVersion } from '../version.js';
import { type Engine, LocalEngine } from './engine.js';
import { KeepAlive } from './keep-alive.js';
import { localTransport } from './local-connection.js';

/** The sections of a configuration file as an object, and what only a program can say. Those of listeners and tokens have no effect. */
export interface EngineOptions extends ConfigValues {
  /** Short for inference.model_name: "demo" (when not given), a folder, or an id in the Hugging Face cache. */
  readonly model_name?: string;
  /** A TOML file below these options and the environment; the demo model's own profile where that model runs and no file is named. */
  readonly config?: string;
  /** Where INFERD_SECTION__KEY and folders are looked up; process.env when not given. */
  readonly env?: NodeJS.ProcessEnv;
  /** Hears how far loading is. */
  readonly onProgress?: (progress: StartProgress) => void;
  /** Gives up the start. */
  readonly signal?: AbortSignal;
}

/** What is other than in a daemon where nobody says anything: the caller is no stranger, may take its time, and has stderr for itself. */
export const libraryDefaults = {
  scheduler: { queue_timeout_s: 86_400 },
  server: { slow_client_timeout_s: 3600, max_requests_per_connection: 65_536 },
  log: { level: 'fatal' },
} as const satisfies ConfigDefaults;

/**
 * Starts an engine in this process; resolves when it can answer. An open engine does not keep the process alive, a call that is not
 * answered does: a program that ends without `close` ends.
 * @throws ConfigError for options, files and models that cannot be used; StartError when the engine cannot start, with one sentence;
 *   the signal's reason
 */
export async function createEngine(options: EngineOptions = {}): Promise<Engine> {
  const { onProgress, signal, env = process.env } = options;
  signal?.throwIfAborted();
  const { config, warnings } = readOptions(options, env);
  for (const warning of warnings) process.emitWarning(warning, 'InferdWarning');
  const model = resolveModelFolder(config, env);
  if (!useNativeBuild(env)) throw new StartError('The native engine is not built; run "npx inferd build" once.', EXIT.unavailable);
  return openEngine({ config, model, env, onProgress, signal });
}

function readOptions(options: EngineOptions, env: NodeJS.ProcessEnv): LoadedConfig {
  const { model_name, config: file, env: _env, onProgress: _onProgress, signal: _signal, ...sections } = options;
  const values = model_name === undefined ? sections : { ...sections, inference: { ...sections.inference, model_name } };
  const load = (of: { readonly file?: string }): LoadedConfig => loadConfig({ ...of, values, env, defaults: libraryDefaults });
  if (file !== undefined) return load({ file });
  const plain = load({});
  return plain.config.inference.model_name === 'demo' ? load({ file: demoProfile() }) : plain;
}

export interface OpenOptions {
  readonly config: Config;
  readonly model: ModelFolder;
  readonly env: NodeJS.ProcessEnv;
  readonly onProgress?: ((progress: StartProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The same with a configuration that is read. @throws StartError, or the signal's reason */
export async function openEngine({ config, model, env, onProgress, signal }: OpenOptions): Promise<Engine> {
  const log = createLog(config.log);
  const tracing = await openTracing(config.metrics, log);
  const alive = new KeepAlive();
  const handle = startEngine(config, model, { log, background: true, ...(onProgress === undefined ? {} : { onProgress }) });
  const profiler = engineProfiler(() => handle, { config, env, log });
  const hub = createHub(config, env, log);
  const end = async (): Promise<void> => {
    alive.hold(true);
    await hub.close();
    await profiler.close();
    await handle.stop();
    await tracing.close();
    alive.close();
  };
  try {
    await untilReady(handle, signal);
    if (config.profile.at_start) await profiler.start();
    const server = createRpcServer({
      models: fixedModels({ engine: handle.client, model, config }),
      profiler,
      hub,
      config,
      version: packageVersion(),
      log,
      startedAt: Date.now(),
      observe: tracing.observe,
      onDrain: () => void engine.close(),
    });
    const client = await InferdClient.open(localTransport(server, alive), 'inferd-library');
    const engine = new LocalEngine({ client, window: windowOf(config), end });
    // The last moment at which a program that forgets its engine has: what it recorded is still written.
    const onExit = (): void => void engine.close();
    process.once('beforeExit', onExit);
    void client.closed.then(() => process.off('beforeExit', onExit));
    return engine;
  } catch (error) {
    await end();
    throw error;
  }
}

async function untilReady(handle: EngineHandle, signal: AbortSignal | undefined): Promise<void> {
  let onAbort = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted) onAbort();
  });
  try {
    await Promise.race([handle.ready, aborted]);
  } catch (error) {
    if (error instanceof InferdError) throw new StartError(error.message, startExit(error.failure.kind), error);
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}

/** Twice what can run keeps the engine busy; more would only wait in its queue. */
function windowOf({ scheduler: { max_num_sequences, max_queue } }: Config): number {
  return Math.min(2 * max_num_sequences, max_num_sequences + max_queue);
}
