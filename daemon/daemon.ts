/**
 * The daemon process around the engine: starts the parts in order, and stops them in reverse. Called by the command line and by tests;
 * runs on the main thread.
 *
 *   start   token -> one-instance lock -> default model (its engine loads in its own threads) -> listeners -> daemon.json -> ready
 *   stop    refuse new work -> `$/shutdown` -> running requests finish, or end at drain_timeout_s -> sockets close (1001) -> the profile
 *           being recorded is written -> engines -> lock
 *
 * The listeners open before the model is loaded, so that health probes and clients get an answer meanwhile.
 * Invariants: `stopped` resolves exactly once, and then nothing of this daemon holds a port, a lock or a file.
 */

import type { Server } from 'node:http';
import { RequestIds } from '../actors/client-ids.js';
import type { StartProgress } from '../actors/client-types.js';
import { InferdError } from '../actors/messages/errors.js';
import { errorFields, type Log } from '../actors/runtime/log.js';
import { asksForToken, authModes } from '../config/auth-modes.js';
import type { ModelFolder } from '../config/models/model-folder.js';
import { expandHome, inferdPaths, keysFolder, tokensFolder } from '../config/paths.js';
import type { Config } from '../config/schema.js';
import { EXIT, type ExitCode, startExit } from './exit-code.js';
import { type Auth, type AuthFiles, createAuth } from './front/auth/auth.js';
import { createFront, type Front } from './front/front.js';
import { gateRules } from './front/gate.js';
import type { HttpTimeouts } from './front/http.js';
import { type Listeners, openListeners } from './front/listen.js';
import { Traffic } from './front/traffic.js';
import { createHub, type DaemonHub } from './hub/hub.js';
import type { Ending } from './life/child-actor.js';
import { type EngineHandle, startEngine } from './life/engine.js';
import { installSignals } from './life/signals.js';
import { acquireInstance, type Instance, prepareRuntimeDir } from './life/single-instance.js';
import { createNotifier, type Notifier } from './life/systemd-notify.js';
import type { DaemonLog } from './log.js';
import { Metrics } from './metrics/metrics.js';
import type { Fleet } from './models/fleet.js';
import { openFleet } from './models/open-fleet.js';
import { makePrivateFolder } from './private-folder.js';
import { engineProfiler, profileFolder } from './profile/engine-profiler.js';
import { checkProfileFolder, type EngineProfiler } from './profile/profiler.js';
import { type Live, reload } from './reload.js';
import { StartError } from './start-error.js';
import { STOP_LIMITS } from './stop-limits.js';
import { openTracing, type Tracing } from './tracing/tracing.js';
import { packageVersion } from './version.js';

export interface DaemonOptions {
  readonly config: Config;
  /** Where the values of `config` came from: --set and the environment win over a model's own file. */
  readonly origins?: ReadonlyMap<string, string>;
  /** The default model. */
  readonly model: ModelFolder;
  /** Its own configuration, where it is another than `config`. */
  readonly modelConfig?: Config;
  readonly log: Log;
  /** Be the one daemon of the runtime folder: take its lock and write daemon.json. */
  readonly publish: boolean;
  /** Handle signals and uncaught errors of the process; as `publish` when not said. */
  readonly signals?: boolean;
  onProgress?(progress: StartProgress): void;
  /** Reads the configuration again, for SIGHUP. */
  reload?(): Config;
  /** Where folders and the service manager's variables are looked up; process.env when not said. */
  readonly env?: NodeJS.ProcessEnv;
  readonly timeouts?: HttpTimeouts;
  /** Starts the engine; tests put another in its place. */
  readonly startEngine?: typeof startEngine;
}

export interface Daemon {
  readonly addresses: { readonly ws: string; readonly http: string; readonly unixSocket: string | null };
  /** What clients must show; `null` in mode none. */
  readonly token: string | null;
  /** Of the default model. @throws while it is not loaded */
  readonly engine: EngineHandle;
  /** All models with their engines. */
  readonly models: Fleet;
  /** Exit code of the process: 0 after a drain, 70 when the only engine gave up or a stop had to be forced, 71 when a GPU error spoiled the process. */
  readonly stopped: Promise<ExitCode>;
  /** Drains and stops; resolves when all is gone. */
  stop(reason: string): Promise<void>;
}

/**
 * Starts a daemon; resolves when the model can serve.
 * @throws StartError with one sentence for the user when something prevents it; everything that was opened is closed again.
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const process_ = new DaemonProcess(options);
  await process_.start();
  return process_;
}

class DaemonProcess implements Daemon {
  readonly #options: DaemonOptions;
  readonly #log: Log;
  readonly #env: NodeJS.ProcessEnv;
  readonly #live: Live;
  readonly #notifier: Notifier;
  readonly #startedAt = Date.now();
  readonly #requestIds = new RequestIds();
  #auth: Auth | null = null;
  #instance: Instance | null = null;
  #fleet: Fleet | null = null;
  #profiler: EngineProfiler | null = null;
  #tracing: Tracing | null = null;
  #front: Front | null = null;
  #hub: DaemonHub | null = null;
  #listeners: Listeners | null = null;
  /** Settles, never rejects, when nothing more will be opened; a stop that comes earlier waits for it. */
  #opened: Promise<void> = Promise.resolve();
  #accepting = true;
  /** The start failed: whoever started us says why, so the log need not tell how we leave. */
  #failedStart = false;
  #stopping: Promise<void> | null = null;
  #removeSignals: () => void = () => {};
  #resolveStopped: (code: ExitCode) => void = () => {};
  readonly stopped: Promise<ExitCode>;

  constructor(options: DaemonOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#env = options.env ?? process.env;
    this.#live = { config: options.config, rules: gateRules(options.config.auth) };
    this.#notifier = createNotifier(this.#env, options.log);
    this.stopped = new Promise((resolve) => {
      this.#resolveStopped = resolve;
    });
  }

  get token(): string | null {
    return this.#auth?.token ?? null;
  }

  get engine(): EngineHandle {
    const handle = this.models.handle();
    if (handle === null) throw new Error('the default model is not loaded');
    return handle;
  }

  get models(): Fleet {
    if (this.#fleet === null) throw new Error('no model was loaded yet');
    return this.#fleet;
  }

  get addresses(): Daemon['addresses'] {
    const { host = null, port = null, unixSocket = null } = this.#listeners ?? {};
    const at = host === null ? null : `${host}:${port}`;
    // A colon ends the path in such an address.
    const path = unixSocket?.split('/').map(encodeURIComponent).join('/');
    return { ws: at ? `ws://${at}` : `ws+unix:${path}:/`, http: at ? `http://${at}` : `http+unix:${path}:/`, unixSocket };
  }

  async start(): Promise<void> {
    try {
      const opening = this.#open();
      this.#opened = opening.then(
        () => {},
        () => {},
      );
      const loaded = await opening;
      await Promise.race([loaded.ready, this.stopped]);
      if (this.#stopping !== null) throw new Error('stopped early');
      if (this.#options.config.profile.at_start) await this.#profiler?.start();
    } catch (error) {
      if (this.#stopping !== null) throw new StartError('The daemon was stopped before it was ready.', await this.stopped, error);
      this.#failedStart = true;
      await this.#end(EXIT.internal, 'the start failed', false);
      throw error instanceof InferdError ? new StartError(error.message, startExit(error.failure.kind), error) : error;
    }
    const { ws } = this.addresses;
    this.#notifier.ready(`Serving ${this.#options.model.name} at ${ws}`, () => this.models.alive());
    this.#log.info({ address: ws, model: this.#options.model.name, ms: Date.now() - this.#startedAt }, 'ready');
  }

  stop(reason: string): Promise<void> {
    return this.#end(EXIT.ok, reason, true);
  }

  /** Everything up to open listeners; the model is still loading when this returns. */
  async #open(): Promise<{ readonly ready: Promise<void> }> {
    const { config, model, publish } = this.#options;
    const { runtimeDir } = inferdPaths(this.#env);
    const givenTokenFile = config.auth.token_file;
    const tokenFile = givenTokenFile === null ? `${runtimeDir}/token` : expandHome(givenTokenFile, this.#env);
    if (this.#options.signals ?? publish) this.#installSignals();
    if (publish) this.#instance = await acquireInstance(this.#env);
    else if (authModes(config.auth.mode).length > 0 && givenTokenFile === null) prepareRuntimeDir(runtimeDir);
    const auth = createAuth(config, this.#authFiles(tokenFile), this.#log);
    this.#auth = auth;
    const { data_parallel_size: groups, tensor_parallel_size: ranks } = config.parallel;
    if (config.profile.at_start) checkProfileFolder(profileFolder(config, this.#env), { groups, ranks });
    const tracing = await openTracing(config.metrics, this.#log);
    this.#tracing = tracing;

    const traffic = new Traffic();
    const metrics = new Metrics({ traffic, webSockets: () => this.#front?.sockets.count() ?? 0 });
    const fleet = openFleet({
      main: this.#options,
      first: { model, config: this.#options.modelConfig ?? config },
      env: this.#env,
      log: this.#log,
      ids: this.#requestIds,
      metrics,
      startEngine: this.#options.startEngine ?? startEngine,
      settings: () => this.#live.config.models,
      onProgress: (progress) => {
        this.#notifier.loading(`Starting: ${progress.phase} ${progress.done} of ${progress.total}`);
        this.#options.onProgress?.(progress);
      },
      onState: (state) => {
        this.#tell({ state }, 'engine state');
        this.#notifier.status(`Engine: ${state}`);
      },
      onGaveUp: (ending) => this.#onGaveUp(ending),
    });
    this.#fleet = fleet;
    const ready = fleet.start();
    // Awaited in start(); until then a failure must not count as unhandled.
    ready.catch(() => {});
    const profiler = engineProfiler(() => fleet.recorded(), { config, env: this.#env, log: this.#log });
    this.#profiler = profiler;
    const hub = createHub(config, this.#env, this.#log);
    this.#hub = hub;
    const front = createFront({
      config,
      models: fleet,
      probed: fleet,
      profiler,
      hub,
      traffic,
      scrape: () => metrics.scrape(),
      firstTokens: (name) => metrics.firstTokens(name),
      observe: tracing.observe,
      auth,
      log: this.#log,
      version: packageVersion(),
      startedAt: this.#startedAt,
      timeouts: this.#options.timeouts,
      rules: () => this.#live.rules,
      accepting: () => this.#accepting,
      onDrain: () => void this.stop('asked by a client'),
    });
    this.#front = front;
    this.#listeners = await openListeners(config.server, front.createServer, this.#env, auth.token !== null);
    const { ws, http, unixSocket } = this.addresses;
    this.#instance?.publish({
      pid: process.pid,
      startedAt: new Date(this.#startedAt).toISOString(),
      version: packageVersion(),
      address: ws,
      http,
      unixSocket,
      tokenFile: auth.token === null ? null : tokenFile,
    });
    this.#log.info({ address: ws, unixSocket }, 'listening; the model is loading');
    return { ready };
  }

  #authFiles(tokenFile: string): AuthFiles {
    const { auth } = this.#options.config;
    const trustedKeys = auth.trusted_keys.map((file) => expandHome(file, this.#env));
    return { tokenFile, tokensFolder: this.#tokensFolder(), keysFolder: keysFolder(this.#env), trustedKeys };
  }

  /** Where it cannot be made, as on a disk that cannot be written, only the daemon's own token counts. */
  #tokensFolder(): string {
    const folder = tokensFolder(this.#env);
    if (!asksForToken(this.#options.config.auth.mode)) return folder;
    try {
      makePrivateFolder(folder, 'folder of tokens');
    } catch (error) {
      this.#log.warn(errorFields(error), 'tokens of clients are not kept here');
    }
    return folder;
  }

  #onGaveUp({ failure, fatal }: Ending): void {
    if (this.#stopping !== null) return;
    this.#log.error({ kind: failure.kind, reason: failure.message }, 'the engine gave up');
    void this.#end(fatal ? EXIT.device : EXIT.internal, 'the engine gave up', false);
  }

  /** The one way down. The first caller decides code and manner; later ones wait for the same end. */
  #end(code: ExitCode, reason: string, drain: boolean): Promise<void> {
    this.#stopping ??= this.#shutDown(code, reason, drain);
    return this.#stopping;
  }

  async #shutDown(code: ExitCode, reason: string, drain: boolean): Promise<void> {
    this.#accepting = false;
    this.#tell({ reason, connections: this.#front?.sockets.count() ?? 0 }, 'stopping');
    this.#notifier.stopping();
    await this.#opened;
    const closed = this.#servers().map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
    this.#front?.announceShutdown();
    // A download is not waited for: the next pull goes on with it.
    if (this.#hub !== null) await bounded(this.#hub.close(), STOP_LIMITS.closeMs);
    let clean = true;
    if (drain && this.#fleet !== null) {
      const deadlineMs = this.#options.config.server.drain_timeout_s * 1000;
      clean = await bounded(this.#fleet.drain(deadlineMs), deadlineMs + STOP_LIMITS.drainGraceMs);
    }
    await this.#front?.sockets.closeAll(STOP_LIMITS.closeMs);
    await bounded(Promise.all(closed), STOP_LIMITS.closeMs);
    for (const server of this.#servers()) server.closeAllConnections();
    if (this.#profiler !== null && !(await bounded(this.#profiler.close(), STOP_LIMITS.profileMs)))
      this.#log.error({}, 'the profile took too long');
    if (this.#fleet !== null) clean = (await bounded(this.#fleet.stop(), STOP_LIMITS.engineStopMs)) && clean;
    if (!clean) this.#log.error({}, 'an engine did not stop in time');
    if (this.#tracing !== null) await bounded(this.#tracing.close(), STOP_LIMITS.tracingMs);
    this.#release(clean || code !== EXIT.ok ? code : EXIT.internal);
  }

  #tell(fields: Record<string, unknown>, message: string): void {
    if (this.#failedStart) this.#log.debug(fields, message);
    else this.#log.info(fields, message);
  }

  #servers(): readonly Server[] {
    return this.#listeners?.servers ?? [];
  }

  #release(code: ExitCode): void {
    this.#removeSignals();
    this.#auth?.close();
    this.#notifier.close();
    this.#instance?.release();
    this.#tell({ code }, 'stopped');
    this.#resolveStopped(code);
  }

  #installSignals(): void {
    const log = this.#log as Log & Partial<DaemonLog>;
    this.#removeSignals = installSignals({
      stop: (reason) => this.stop(reason),
      abandon: () => this.#instance?.release(),
      reload: () => {
        const read = this.#options.reload;
        if (read === undefined) this.#log.warn({}, 'this daemon has no configuration to reload');
        else this.#notifier.reloading(() => reload(this.#live, read, (level) => log.setLevel?.(level), this.#log));
      },
      fatal: (fields, message) => (log.fatal ?? log.error).call(log, fields, message),
    });
  }
}

/** True when `work` settled well within `ms`. */
async function bounded(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  const done = work.then(
    () => true,
    () => false,
  );
  const inTime = await Promise.race([done, late]);
  clearTimeout(timer);
  return inTime;
}
