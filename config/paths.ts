/**
 * The folders and files that inferd uses, per operating system: XDG base directories on Linux and other Unix systems, Library folders
 * on macOS, %LOCALAPPDATA% on Windows. The one place that knows them. Only reads the environment; creates nothing.
 * Called by the daemon (to publish), the clients (to find a daemon) and the command line.
 */
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';

export interface InferdPaths {
  readonly configDir: string;
  readonly dataDir: string;
  readonly cacheDir: string;
  readonly stateDir: string;
  /** Lock, daemon.json, token and Unix socket: must be private to the user (mode 0700). */
  readonly runtimeDir: string;
}

/** What a running daemon publishes about itself, so that clients need not guess. */
export interface DaemonFile {
  readonly pid: number;
  /** ISO 8601. */
  readonly startedAt: string;
  readonly version: string;
  /** For example "ws://127.0.0.1:8765". */
  readonly address: string;
  readonly http: string;
  readonly unixSocket: string | null;
  /** File with the token; null when none is asked for. */
  readonly tokenFile: string | null;
}

/** The user's home folder: $HOME, else what the system says. */
function home(env: NodeJS.ProcessEnv): string {
  const given = env['HOME'];
  return given !== undefined && isAbsolute(given) ? given : homedir();
}

/** Folders of inferd for this user. The XDG variables count on every system when set; a relative path in one is ignored, as XDG says. */
export function inferdPaths(env: NodeJS.ProcessEnv = process.env, platform: NodeJS.Platform = process.platform): InferdPaths {
  const at = home(env);
  const xdg = (variable: string, otherwise: string): string => {
    const given = env[variable];
    return given !== undefined && isAbsolute(given) ? join(given, 'inferd') : otherwise;
  };
  if (platform === 'win32') {
    const local = env['LOCALAPPDATA'];
    const base = join(local !== undefined && isAbsolute(local) ? local : join(at, 'AppData', 'Local'), 'inferd');
    return folders(xdg, { config: join(base, 'config'), data: join(base, 'data'), cache: join(base, 'cache'), state: join(base, 'state') });
  }
  if (platform === 'darwin') {
    const library = join(at, 'Library');
    const support = join(library, 'Application Support', 'inferd');
    return folders(xdg, { config: support, data: support, cache: join(library, 'Caches', 'inferd'), state: join(support, 'state') });
  }
  return folders(xdg, {
    config: join(at, '.config', 'inferd'),
    data: join(at, '.local', 'share', 'inferd'),
    cache: join(at, '.cache', 'inferd'),
    state: join(at, '.local', 'state', 'inferd'),
  });
}

function folders(
  xdg: (variable: string, otherwise: string) => string,
  own: { readonly config: string; readonly data: string; readonly cache: string; readonly state: string },
): InferdPaths {
  const stateDir = xdg('XDG_STATE_HOME', own.state);
  return {
    configDir: xdg('XDG_CONFIG_HOME', own.config),
    dataDir: xdg('XDG_DATA_HOME', own.data),
    cacheDir: xdg('XDG_CACHE_HOME', own.cache),
    stateDir,
    // Without a login session there is no runtime folder; the state folder is private too, and unlike /tmp nobody can squat on it.
    runtimeDir: xdg('XDG_RUNTIME_DIR', join(stateDir, 'run')),
  };
}

/** The user's own configuration file, which `serve` reads when it exists. */
export function userConfigPath(env: NodeJS.ProcessEnv = process.env): string {
  return join(inferdPaths(env).configDir, 'config.toml');
}

/** Records of the tokens that `inferd token` makes. */
export function tokensFolder(env: NodeJS.ProcessEnv = process.env): string {
  return join(inferdPaths(env).stateDir, 'tokens');
}

/** Public keys that `inferd key` adds. */
export function keysFolder(env: NodeJS.ProcessEnv = process.env): string {
  return join(inferdPaths(env).configDir, 'keys');
}

/** Where a running daemon publishes itself. */
export function daemonFilePath(env: NodeJS.ProcessEnv = process.env): string {
  return join(inferdPaths(env).runtimeDir, 'daemon.json');
}

/** What the last daemon published, or null when there is no such file or it does not hold what it should. It may have died since. */
export function readDaemonFile(env: NodeJS.ProcessEnv = process.env): DaemonFile | null {
  try {
    const data = JSON.parse(readFileSync(daemonFilePath(env), 'utf8')) as Partial<Record<keyof DaemonFile, unknown>>;
    const { pid, startedAt, version, address, http, unixSocket, tokenFile } = data;
    if (typeof pid !== 'number' || !Number.isSafeInteger(pid) || pid < 1) return null;
    if (typeof startedAt !== 'string' || typeof version !== 'string' || typeof address !== 'string' || typeof http !== 'string')
      return null;
    return {
      pid,
      startedAt,
      version,
      address,
      http,
      unixSocket: typeof unixSocket === 'string' ? unixSocket : null,
      tokenFile: typeof tokenFile === 'string' ? tokenFile : null,
    };
  } catch {
    return null;
  }
}

/**
 * The Hugging Face hub cache, as its own tools find it: `cacheDir` (our option), HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 * ~/.cache/huggingface/hub.
 */
export function hubCachePath(cacheDir: string | null, env: NodeJS.ProcessEnv = process.env): string {
  if (cacheDir !== null) return expandHome(cacheDir, env);
  const [hub, hf, xdg] = [env['HF_HUB_CACHE'], env['HF_HOME'], env['XDG_CACHE_HOME']];
  if (hub) return expandHome(hub, env);
  if (hf) return join(expandHome(hf, env), 'hub');
  return join(xdg && isAbsolute(xdg) ? xdg : join(home(env), '.cache'), 'huggingface', 'hub');
}

/** The file in which Hugging Face's tools keep the user's token: HF_TOKEN_PATH, else "token" beside the hub cache. */
export function hubTokenPath(env: NodeJS.ProcessEnv = process.env): string {
  const given = env['HF_TOKEN_PATH'];
  if (given) return expandHome(given, env);
  const hf = env['HF_HOME'];
  return join(hf ? expandHome(hf, env) : dirname(hubCachePath(null, { ...env, HF_HUB_CACHE: '' })), 'token');
}

/** `~` and `~/x` become paths under the home folder; anything else is returned as it is. */
export function expandHome(path: string, env: NodeJS.ProcessEnv = process.env): string {
  return path === '~' || path.startsWith('~/') ? join(home(env), path.slice(1)) : path;
}
