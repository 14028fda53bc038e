/**
 * One daemon per runtime folder, and the file by which clients find it.
 *
 *   runtimeDir/              0700
 *     instance.sock          held open by the living daemon; whoever can connect to it knows that a daemon lives
 *     instance.lock          made with O_EXCL for the moment in which a stale instance.sock is replaced
 *     daemon.json            pid, addresses, version, token file: written by rename, removed at exit
 *     token                  see front/auth.ts
 *
 * Only the kernel says whether a daemon lives: binding a socket is exclusive and its death unbinds it. A pid in a file proves nothing
 * after a crash, because pids are given out again. Runs on the main thread.
 */

import { createHash } from 'node:crypto';
import { closeSync, openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DaemonFile, daemonFilePath, inferdPaths, readDaemonFile } from '../../config/paths.js';
import { EXIT } from '../exit-code.js';
import { makePrivateFolder } from '../private-folder.js';
import { StartError } from '../start-error.js';

/** Shortest limit of sun_path on the systems we run on, less the final zero. */
const MAX_SOCKET_PATH_BYTES = 103;
/** Replacing a stale socket takes milliseconds; a guard file older than this belongs to somebody who died doing it. */
const GUARD_STALE_MS = 5000;
const GUARD_RETRY_MS = 25;
const CONNECT_TIMEOUT_MS = 2000;

export interface Instance {
  /** Writes daemon.json; may be called again with new facts. */
  publish(file: DaemonFile): void;
  /** Removes daemon.json (if it is ours) and gives the folder free. Safe to call twice. */
  release(): void;
}

/**
 * Makes the runtime folder and becomes its only daemon.
 * @throws StartError (exit 69, "already running at ...") when a daemon lives there; (77) when the folder cannot be trusted.
 */
export async function acquireInstance(env: NodeJS.ProcessEnv): Promise<Instance> {
  const { runtimeDir } = inferdPaths(env);
  const daemonFile = daemonFilePath(env);
  prepareRuntimeDir(runtimeDir);
  const address = lockAddress(runtimeDir);
  const server = (await tryListen(address)) ?? (await takeOver(runtimeDir, address));
  if (server === null) {
    const at = readDaemonFile(env)?.address;
    throw new StartError(
      `An inferd daemon is already running${at === undefined ? '' : ` at ${at}`}; use it, or stop it first with "inferd stop".`,
      EXIT.unavailable,
    );
  }
  server.unref();
  let written: string | null = null;
  return {
    publish(file) {
      const text = `${JSON.stringify(file, null, 2)}\n`;
      replaceFile(daemonFile, text);
      written = text;
    },
    release() {
      try {
        if (written !== null && readFileSync(daemonFile, 'utf8') === written) rmSync(daemonFile, { force: true });
      } catch {
        // Somebody removed it before us: nothing to do.
      }
      written = null;
      server.close();
    },
  };
}

/** Is a daemon of this runtime folder alive, also one that drains and takes no connections any more? */
export function instanceLives(env: NodeJS.ProcessEnv): Promise<boolean> {
  return answers(lockAddress(inferdPaths(env).runtimeDir));
}

/** Makes the folder with mode 0700, or checks that an existing one is ours alone. @throws StartError */
export const prepareRuntimeDir = (dir: string): void => makePrivateFolder(dir, 'runtime folder');

/** Writes beside the file and renames, so that a reader sees the old or the new content, never half of one. Mode 0600. */
function replaceFile(file: string, text: string): void {
  const fresh = `${file}.${process.pid}.tmp`;
  rmSync(fresh, { force: true });
  writeFileSync(fresh, text, { mode: 0o600, flag: 'wx' });
  renameSync(fresh, file);
}

/** A socket in the folder; where its path is too long for a socket, one in the temporary folder named after it; a pipe on Windows. */
function lockAddress(runtimeDir: string): string {
  const name = createHash('sha256').update(runtimeDir).digest('hex').slice(0, 24);
  if (process.platform === 'win32') return `\\\\.\\pipe\\inferd-${name}`;
  const path = join(runtimeDir, 'instance.sock');
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES ? path : join(tmpdir(), `inferd-${process.getuid?.() ?? 0}-${name}.sock`);
}

/** Under the guard file: if nobody answers on the socket, remove it and listen. `null`: somebody lives there. */
async function takeOver(runtimeDir: string, address: string): Promise<Server | null> {
  const guard = join(runtimeDir, 'instance.lock');
  const deadline = Date.now() + 2 * GUARD_STALE_MS;
  while (!tryGuard(guard)) {
    if (Date.now() > deadline) throw new StartError(`${guard} is held by another process that starts a daemon.`, EXIT.unavailable);
    await sleep(GUARD_RETRY_MS);
  }
  try {
    if (await answers(address)) return null;
    rmSync(address, { force: true });
    return await tryListen(address);
  } finally {
    rmSync(guard, { force: true });
  }
}

function tryGuard(guard: string): boolean {
  try {
    closeSync(openSync(guard, 'wx', 0o600));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  try {
    if (Date.now() - statSync(guard).mtimeMs > GUARD_STALE_MS) rmSync(guard, { force: true });
  } catch {
    // Given free in the meantime: the next try gets it.
  }
  return false;
}

/** Listens on a path that only this user can reach. `null`: the address is in use. */
function tryListen(address: string): Promise<Server | null> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(null);
      else reject(new StartError(`The runtime folder cannot hold a socket: ${error.message}`, EXIT.noPermission, error));
    });
    withUmask(() => server.listen(address, () => resolve(server)));
  });
}

/** True when a process accepts on `address`, or when that cannot be told in time: a doubt must not start a second daemon. */
export function answers(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    const end = (alive: boolean) => {
      socket.destroy();
      resolve(alive);
    };
    socket.setTimeout(CONNECT_TIMEOUT_MS, () => end(true));
    socket.once('connect', () => end(true));
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'));
  });
}

/** Runs `action` so that sockets and files it makes at once have mode 0600. bind() happens inside listen(), hence synchronous. */
export function withUmask(action: () => void): void {
  const before = process.umask(0o177);
  try {
    action();
  } finally {
    process.umask(before);
  }
}
