/**
 * Opens the listeners of the daemon: sockets handed over by a service manager (LISTEN_FDS), else TCP, and a Unix socket beside it.
 *
 * One http.Server per listener, all with the same handlers. Runs on the main thread at start-up.
 */

import { lstatSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isLoopback } from '../../config/check.js';
import { expandHome } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import { EXIT } from '../exit-code.js';
import { answers, withUmask } from '../life/single-instance.js';
import { StartError } from '../start-error.js';

/** What went wrong with an address and what to do, by the system's code. */
const listenFaults: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'the address is in use by another program; stop that program, or set server.port to a free port (0 takes any)'],
  ['EACCES', 'this user may not use it; set server.port to a port above 1023, or server.unix_socket to a path of yours'],
  ['EADDRNOTAVAIL', 'this machine has no such address; set server.host to one that it has, such as 127.0.0.1'],
  ['ENOTFOUND', 'this name has no address; set server.host to an address of this machine, such as 127.0.0.1'],
]);

/** First descriptor that systemd passes. */
const FIRST_FD = 3;
const MAX_PASSED_FDS = 16;

export interface Listeners {
  readonly servers: readonly Server[];
  /** As clients write it: `127.0.0.1`, `[::1]`; `null` without a TCP listener. */
  readonly host: string | null;
  readonly port: number | null;
  readonly unixSocket: string | null;
}

/**
 * Listens. `createServer` makes a server with all handlers, for one listener; `guarded`: clients show who they are, so that others than this
 * machine's may reach it.
 * @throws StartError when an address is taken or not allowed; nothing stays open then.
 */
export async function openListeners(
  config: Config['server'],
  createServer: () => Server,
  env: NodeJS.ProcessEnv,
  guarded = false,
): Promise<Listeners> {
  const servers: Server[] = [];
  let tcp: AddressInfo | null = null;
  let unixSocket: string | null = null;
  const open = async (start: (server: Server) => Promise<void>, fd: number | null = null) => {
    const server = createServer();
    await start(server);
    servers.push(server);
    const at = server.address() ?? (fd === null ? null : unixPathOf(fd));
    if (typeof at === 'string') unixSocket ??= at;
    else if (at !== null && !guarded && !isLoopback(at.address)) {
      // auth.ts has looked at server.host; this is for what a service manager hands over.
      throw new StartError(
        `The socket at ${at.address}:${at.port} can be reached by others and auth.mode is "none"; set auth.mode = "token".`,
        EXIT.config,
      );
    } else tcp ??= at;
  };
  try {
    for (const fd of passedFds(env)) await open((server) => listen(server, { fd }, `descriptor ${fd}`), fd);
    if (servers.length === 0) {
      const { host, port } = config;
      await open((server) => listen(server, { host, port }, `${host}:${port}`));
    }
    const path = config.unix_socket;
    if (path !== null && unixSocket === null) await open((server) => listenUnix(server, expandHome(path, env)));
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  const at = tcp as AddressInfo | null; // narrowed to null by the compiler, which does not see the closure assign it
  return { servers, host: at === null ? null : clientHost(at), port: at?.port ?? null, unixSocket };
}

/** Descriptors of socket activation that are meant for this process (sd_listen_fds). Removes the variables, so children do not see them. */
export function passedFds(env: NodeJS.ProcessEnv): number[] {
  const pid = env['LISTEN_PID'];
  const count = Number(env['LISTEN_FDS']);
  delete env['LISTEN_PID'];
  delete env['LISTEN_FDS'];
  delete env['LISTEN_FDNAMES'];
  if (pid !== String(process.pid) || !Number.isInteger(count) || count < 1) return [];
  return Array.from({ length: Math.min(count, MAX_PASSED_FDS) }, (_, i) => FIRST_FD + i);
}

/** Path of a Unix socket that was handed over, of which Node only knows the descriptor; null where the system does not tell it. */
function unixPathOf(fd: number): string | null {
  try {
    const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
    const sockets = readFileSync('/proc/self/net/unix', 'utf8').split('\n');
    // Num RefCount Protocol Flags Type St Inode Path
    return sockets.map((line) => /^\S+:(?: \S+){5} +(\d+) (\/.*)$/.exec(line)).find((m) => m?.[1] === inode)?.[2] ?? null;
  } catch {
    return null;
  }
}

/** A socket file that nobody answers on is left over from a crash and replaced; anything else at that path is left alone. */
async function listenUnix(server: Server, path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found !== undefined) {
    if (!found.isSocket()) throw new StartError(`server.unix_socket: ${path} exists and is not a socket.`, EXIT.unavailable);
    if (await answers(path)) throw new StartError(`server.unix_socket: another program listens on ${path}.`, EXIT.unavailable);
    rmSync(path, { force: true });
  }
  await listen(server, { path }, path);
}

function listen(server: Server, options: { host?: string; port?: number; path?: string; fd?: number }, shown: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException) => {
      const why = listenFaults.get(error.code ?? '') ?? error.message;
      reject(new StartError(`Cannot listen on ${shown}: ${why}.`, error.code === 'EACCES' ? EXIT.noPermission : EXIT.unavailable, error));
    };
    server.once('error', failed);
    const start = () =>
      server.listen(options, () => {
        server.off('error', failed);
        resolve();
      });
    if (options.path === undefined) start();
    else withUmask(start);
  });
}

/** The address clients should use: a wildcard bind is reached over loopback. */
function clientHost(at: AddressInfo): string {
  if (at.address === '0.0.0.0') return '127.0.0.1';
  if (at.address === '::') return '[::1]';
  return at.family === 'IPv6' ? `[${at.address}]` : at.address;
}
