/**
 * One writer of a model's folder at a time, among all processes that share the cache. Who wants to write puts a claim with a name of its own
 * into the folder of claims, and then looks: where another living one is, it takes its own back and waits. Both put before they look, so two
 * never hold it together; and a dead one can be removed by anybody, since its name never comes back. Two that put at the same moment both
 * take theirs back; who finds nobody else writes into its claim that it holds the folder.
 *
 *   CACHE/.locks/models--ORG--NAME/RANDOM.inferd-claim   {"pid", "start", "place", "holds"}
 *
 * A process of the same system is dead when its pid is, or began at another time. Of another system (a cache on a shared disk, a container)
 * only the time of the file tells: its owner touches it every few seconds.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, readlinkSync, utimesSync } from 'node:fs';
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { cancelled } from '../error.js';
import { cacheError } from './cache-folder.js';

export interface Claim {
  /** Safe to call twice. */
  release(): Promise<void>;
}

interface Owner {
  readonly pid: number;
  /** Of the process, as the kernel counts it; null where it does not say. */
  readonly start: string | null;
  /** Where pids mean the same. */
  readonly place: string;
  /** False while it looks whether another is there. */
  readonly holds: boolean;
}

const suffix = '.inferd-claim';
const touchEveryMs = 5000;
const silentMs = 45_000;
const lookEveryMs = 150;

/** Waits until no other process holds the folder. `onWait` is told once, with the pid of a holder. @throws PullError cancelled */
export async function claimFolder(folder: string, signal: AbortSignal, onWait: (pid: number) => void): Promise<Claim> {
  const name = `${randomBytes(8).toString('hex')}${suffix}`;
  const path = join(folder, name);
  let told = false;
  for (;;) {
    if (signal.aborted) throw cancelled();
    let other = await livingOther(folder, name);
    if (other === null) {
      await put(path, false);
      other = await livingOther(folder, name);
      if (other === null) {
        await put(path, true).catch(async (error: unknown) => {
          await rm(path, { force: true });
          throw error;
        });
        return hold(path);
      }
      await rm(path, { force: true });
    }
    if (other.holds && !told) {
      onWait(other.pid);
      told = true;
    }
    // Not in step with those who wait as well.
    await sleep(lookEveryMs * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
  }
}

function hold(path: string): Claim {
  const timer = setInterval(() => {
    const now = new Date();
    try {
      utimesSync(path, now, now);
    } catch {
      // Somebody emptied the folder of locks: nothing to be done, and the hashes still tell what is right.
    }
  }, touchEveryMs);
  timer.unref();
  return {
    async release() {
      clearInterval(timer);
      await rm(path, { force: true });
    },
  };
}

async function put(path: string, holds: boolean): Promise<void> {
  const me: Owner = { pid: process.pid, start: startOf(process.pid), place: here(), holds };
  try {
    await writeFile(`${path}.tmp`, JSON.stringify(me), { flag: 'wx' });
    await rename(`${path}.tmp`, path);
  } catch (error) {
    throw cacheError(error, path);
  }
}

/** A living claim besides our own; dead ones are removed. */
async function livingOther(folder: string, own: string): Promise<Owner | null> {
  for (const name of await readdir(folder)) {
    if (name === own || !name.endsWith(suffix)) continue;
    const path = join(folder, name);
    const owner = await readOwner(path);
    if (owner === 'gone') continue;
    if (owner !== null && (await lives(path, owner))) return owner;
    if (owner !== null || (await isOld(path))) await rm(path, { force: true });
  }
  return null;
}

async function readOwner(path: string): Promise<Owner | null | 'gone'> {
  try {
    const { pid, start, place, holds } = JSON.parse(await readFile(path, 'utf8')) as Partial<Record<keyof Owner, unknown>>;
    if (typeof pid !== 'number' || typeof place !== 'string') return null;
    return { pid, place, start: typeof start === 'string' ? start : null, holds: holds === true };
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'gone' : null;
  }
}

async function lives(path: string, { pid, start, place }: Owner): Promise<boolean> {
  if (place !== here()) return !(await isOld(path));
  // Another call of this process may hold it as well.
  if (start !== null) return startOf(pid) === start;
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  return !(await isOld(path));
}

async function isOld(path: string): Promise<boolean> {
  try {
    return Date.now() - (await stat(path)).mtimeMs > silentMs;
  } catch {
    return false;
  }
}

let place: string | null = null;
/** This boot of this system, and the namespace in which its pids count. */
function here(): string {
  place ??= [
    hostname(),
    text(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    text(() => readlinkSync('/proc/self/ns/pid')),
  ].join(' ');
  return place;
}

/** When a process began, in ticks since the boot (field 22, counted behind the name, which may hold anything). */
function startOf(pid: number): string | null {
  const line = text(() => readFileSync(`/proc/${pid}/stat`, 'utf8'));
  return line.slice(line.lastIndexOf(')') + 2).split(' ')[19] ?? null;
}

function text(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}
