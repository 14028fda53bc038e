/**
 * What a service manager is to run, as plain data: systemd.ts and launchd.ts write it in their manager's words. Made at installation from the
 * configuration and the environment of that moment, because a service starts with neither the user's shell nor its variables.
 */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expandHome, hubCachePath, inferdPaths } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import { packageRoot } from '../../native/index.js';
import { longestStopS } from '../stop-limits.js';

export interface ServiceSpec {
  /** Absolute path of the program, then its arguments. */
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** More variables, NAME=value a line; need not exist. For secrets, which a unit must not show. */
  readonly environmentFile: string;
  /** Absolute paths of folders in which the daemon may write, besides its runtime folder. */
  readonly writable: readonly string[];
  /** From the first signal to the end of the process at the latest. */
  readonly stopLimitS: number;
  /** The manager may end a daemon that says nothing for this long. */
  readonly watchdogS: number;
  /** Addresses for a manager that listens itself. */
  readonly listen: { readonly host: string; readonly port: number; readonly unixSocket: string | null };
}

/** Variables that decide where files, devices and certificates are, and which a service would not have. */
const CARRIED =
  /^(INFERD_[A-Z0-9_]+|HF_HOME|HF_HUB_CACHE|HF_ENDPOINT|XDG_(CONFIG|CACHE|DATA|STATE)_HOME|CUDA_VISIBLE_DEVICES|CUDA_HOME|LD_LIBRARY_PATH|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS)$/;
/** Never written into a unit. */
const SECRETS: readonly string[] = ['HF_TOKEN', 'INFERD_INFERENCE__API_KEY'];
/** The daemon ends what hangs by itself after scheduler.hang_timeout_s and 10 s for its threads; the manager comes after that. */
const WATCHDOG_HANGS = 2;
const WATCHDOG_LEAST_S = 120;

export interface ServiceRequest {
  readonly config: Config;
  /** As given on the command line; null: the service finds its configuration as `inferd serve` does. */
  readonly configFile: string | null;
  readonly sets: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

export function serviceSpec({ config, configFile, sets, env }: ServiceRequest): ServiceSpec {
  const paths = inferdPaths(env);
  const { token_file } = config.auth;
  const { unix_socket } = config.server;
  const { directory } = config.profile;
  const unixSocket = unix_socket === null ? null : resolve(expandHome(unix_socket, env));
  const writable = [
    paths.stateDir,
    paths.dataDir,
    paths.cacheDir,
    hubCachePath(config.inference.cache_dir, env),
    ...(unixSocket === null ? [] : [dirname(unixSocket)]),
    ...(token_file === null ? [] : [dirname(expandHome(token_file, env))]),
    ...(directory === null ? [] : [expandHome(directory, env)]),
  ];
  return {
    command: [
      process.execPath,
      join(packageRoot(), 'daemon', 'cli', 'inferd.mjs'),
      'serve',
      ...(configFile === null ? [] : ['--config', resolve(configFile)]),
      ...sets.flatMap((set) => ['--set', set]),
    ],
    environment: Object.fromEntries(
      Object.entries(env).flatMap(([name, value]) =>
        value !== undefined && CARRIED.test(name) && !SECRETS.includes(name) ? [[name, value] as const] : [],
      ),
    ),
    environmentFile: join(paths.configDir, 'service.env'),
    writable: [...new Set(writable.map((path) => resolve(path)))].sort(),
    stopLimitS: longestStopS(config.server.drain_timeout_s),
    watchdogS: Math.max(WATCHDOG_LEAST_S, Math.ceil(WATCHDOG_HANGS * config.scheduler.hang_timeout_s)),
    listen: { host: config.server.host, port: config.server.port, unixSocket },
  };
}

/** Sentences about what the service will lack or lose. */
export function serviceWarnings(spec: ServiceSpec, env: NodeJS.ProcessEnv): readonly string[] {
  const lost = SECRETS.filter((name) => env[name] !== undefined);
  const [, script = ''] = spec.command;
  return [
    ...lost.map(
      (name) => `${name} is set here and is not written into the unit; put the line ${name}=... into ${spec.environmentFile} (mode 0600)`,
    ),
    ...(/[\\/]_npx[\\/]/.test(script)
      ? [`this copy of inferd lies in npx's cache (${script}), which npm may empty; install it with "npm install -g inferd"`]
      : []),
    ...(existsSync(script) ? [] : [`${script} is not there`]),
  ];
}
