/**
 * A client to talk to, wherever the engine is: the running daemon when there is one, else an engine in this process, as programs have it
 * (daemon/library), closed at the end. Both are reached through the same client, so that the commands have one path. Called by run, chat
 * and eval; `connectRunning` also by ps, status and stop.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import { type DaemonFile, readDaemonFile } from '../../config/paths.js';
import { connect, type InferdClient } from '../../rpc/client/node.js';
import { instanceLives } from '../life/single-instance.js';
import { builtEngine } from './build.js';
import { effectiveConfig, printWarnings } from './effective.js';
import { explain, retryAfterMs } from './failure.js';
import { progressBar } from './progress.js';
import { CliError, EXIT, type Io, type VerbInput } from './verb.js';

/** How long a command waits for a daemon that is still loading its model. */
const loadingMs = 10 * 60_000;
/** How long stopping the engine of this process may take before it is left to the end of the process. */
const stopMs = 5000;
/** How long a daemon that refused us may take to show that it lives. */
const probeMs = 2000;
/** How the daemon's log calls us. */
const clientName = 'inferd-cli';

export interface ReachedDaemon {
  readonly client: InferdClient;
  readonly where: 'daemon' | 'in process';
  readonly address: string;
  /** True once the connection is over, whoever ended it. */
  lost(): boolean;
  /** Closes the client and, in process, stops the engine. Safe to call twice. */
  close(): Promise<void>;
}

export interface Running {
  readonly client: InferdClient;
  readonly file: DaemonFile;
}

/** Connects to the daemon that published itself, or returns null when none is alive. @throws CliError when it lives but refuses us, or is silent. */
export async function connectRunning(io: Io): Promise<Running | null> {
  const file = readDaemonFile(io.env);
  if (file === null) return null;
  let token: string | undefined;
  if (file.tokenFile !== null) {
    try {
      token = readFileSync(file.tokenFile, 'utf8').trim();
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
      throw new CliError(
        `The token file ${file.tokenFile} of the running daemon cannot be read (${code}); restart the daemon`,
        EXIT.unavailable,
        error,
      );
    }
  }
  try {
    return { client: await connect({ url: file.address, name: clientName, ...(token === undefined ? {} : { token }) }), file };
  } catch (error) {
    const heard = await listen(file);
    if (heard === 'speaks') throw explain(error);
    if (heard === 'silent' && (await instanceLives(io.env)))
      throw new CliError(
        `The daemon (pid ${file.pid}) does not answer: it is very busy, or suspended; a suspended one goes on after: kill -CONT ${file.pid}`,
        EXIT.unavailable,
        error,
      );
    // Nobody listens there any more: the file is a leftover, or the daemon drains.
    return null;
  }
}

/**
 * What is where the daemon said it would be. Where anything speaks HTTP it lives, and its refusal is the news; of a process that is
 * suspended the system accepts connections, and nothing comes.
 */
async function listen(file: DaemonFile): Promise<'speaks' | 'silent' | 'nothing'> {
  try {
    await fetch(`${file.http}/version`, { signal: AbortSignal.timeout(probeMs), redirect: 'error' });
    return 'speaks';
  } catch (error) {
    return (error as Error).name === 'TimeoutError' ? 'silent' : 'nothing';
  }
}

/** The same, for commands that are of no use without a daemon. */
export async function requireRunning(io: Io): Promise<Running> {
  const running = await connectRunning(io);
  if (running !== null) return running;
  const stopping = await findStopping(io);
  throw new CliError(
    stopping === null
      ? 'No inferd daemon is running; start one with "inferd serve"'
      : `The daemon (pid ${stopping.pid}) is stopping and takes no connections; "inferd stop" waits for its end`,
    EXIT.unavailable,
  );
}

/** The daemon that finishes its last requests and no longer takes connections, or null. */
export async function findStopping(io: Io): Promise<DaemonFile | null> {
  const file = readDaemonFile(io.env);
  return file !== null && (await instanceLives(io.env)) ? file : null;
}

/** Finds the daemon to talk to. With --config or --set, or when no daemon runs, the engine is started in process. */
export async function reachDaemon(input: VerbInput): Promise<ReachedDaemon> {
  const own = input.text('config') !== undefined || input.list('set').length > 0;
  const running = own ? null : await connectRunning(input.io);
  return running === null ? startInProcess(input) : withDaemon(running);
}

/** The same one while its connection holds, else one with the daemon that runs by now. @throws CliError when none does */
export async function renewed(reached: ReachedDaemon, io: Io): Promise<ReachedDaemon> {
  return reached.where === 'daemon' && reached.lost() ? withDaemon(await requireRunning(io)) : reached;
}

function withDaemon({ client, file }: Running): ReachedDaemon {
  return { client, where: 'daemon', address: file.address, lost: watchEnd(client), close: () => client.close() };
}

function watchEnd(client: InferdClient): () => boolean {
  let over = false;
  void client.closed.then(() => {
    over = true;
  });
  return () => over;
}

/** Repeats `call` while the daemon says that the model is still loading. */
export async function whenLoaded<T>(call: () => Promise<T>): Promise<T> {
  const until = Date.now() + loadingMs;
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const after = retryAfterMs(error);
      if (after === null || Date.now() + after > until) throw error;
      await sleep(after);
    }
  }
}

async function startInProcess(input: VerbInput): Promise<ReachedDaemon> {
  const { io } = input;
  // Loaded only here, so that commands which need no engine start fast.
  const { openEngine, libraryDefaults } = await import('../library/create-engine.js');
  const model = input.text('model');
  const loaded = effectiveConfig(input, model === undefined ? [] : [`inference.model_name=${JSON.stringify(model)}`], libraryDefaults);
  const found = resolveModelFolder(loaded.config, io.env);
  printWarnings(input, loaded);
  await builtEngine(io);
  const bar = progressBar(io);
  const config = { ...loaded.config, log: { ...loaded.config.log, level: input.flag('verbose') ? 'debug' : 'fatal' } as const };
  const engine = await openEngine({ config, model: found, env: io.env, onProgress: (progress) => bar.update(progress) }).finally(() =>
    bar.end(),
  );
  const close = (): Promise<void> => Promise.race([engine.close(), sleep(stopMs, undefined, { ref: false })]);
  return { client: engine.client, where: 'in process', address: 'this process', lost: watchEnd(engine.client), close };
}
