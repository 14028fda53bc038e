/**
 * Takes a model, or one revision of it, out of the cache: refs first, then snapshots, then the contents that no other snapshot leads to. In
 * that order nothing that can still be found is ever half there, and a removal that was cut short is finished by the next one.
 */
import { lstat, readdir, readFile, readlink, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { findSnapshot } from '../../../config/models/hub-cache.js';
import { PullError } from '../error.js';
import { checkSpec } from '../repository/spec.js';
import { CacheFolder, cacheError } from './cache-folder.js';
import { claimFolder } from './claim.js';

export interface Removed {
  readonly id: string;
  /** Freed on the disk. */
  readonly bytes: number;
  /** Commits of the snapshots that are gone. */
  readonly commits: readonly string[];
}

export interface RemoveOptions {
  readonly cache: string;
  readonly id: string;
  /** A branch, tag or commit; null: all there is of the model, unfinished downloads too. */
  readonly revision: string | null;
  readonly signal: AbortSignal;
  onWait(pid: number): void;
}

type Removable = Pick<RemoveOptions, 'cache' | 'id' | 'revision'>;

const absent = ({ cache, id, revision }: Removable): PullError =>
  new PullError(
    'not_found',
    `The cache ${cache} has no model ${id}${revision === null ? '' : ` at ${revision}`}; "inferd list" shows what there is`,
  );

/** Changes nothing. @throws PullError not_found when there is nothing that `removeModel` could remove. */
export async function mustBeCached(named: Removable): Promise<void> {
  const { cache, id, revision } = named;
  checkSpec({ id, revision: revision ?? 'main', quant: null });
  const folder = await CacheFolder.open(cache, id);
  const there = revision === null ? (await lstat(folder.path).catch(() => null)) !== null : findSnapshot(cache, id, revision) !== null;
  if (!there) throw absent(named);
}

/** @throws PullError not_found when the cache has nothing of it. */
export async function removeModel({ cache, id, revision, signal, onWait }: RemoveOptions): Promise<Removed> {
  checkSpec({ id, revision: revision ?? 'main', quant: null });
  const folder = await CacheFolder.open(cache, id);
  const stat = await lstat(folder.path).catch(() => null);
  if (stat === null) throw absent({ cache, id, revision });
  if (!stat.isDirectory())
    throw new PullError('cache', `${folder.path} is a link or a file, and nothing is removed through it; remove it yourself`);
  const claim = await claimFolder(await folder.claims(), signal, onWait);
  try {
    if (revision === null) return await removeAll(folder, id);
    const removed = await removeRevision(folder, id, revision);
    if (removed === null) throw absent({ cache, id, revision });
    return removed;
  } catch (error) {
    throw cacheError(error, folder.path);
  } finally {
    await claim.release();
  }
}

async function removeAll(folder: CacheFolder, id: string): Promise<Removed> {
  const commits = await names(join(folder.path, 'snapshots'));
  const bytes = await sizeOf(folder.path);
  for (const part of ['refs', 'snapshots', 'blobs']) await rm(join(folder.path, part), { recursive: true, force: true });
  await rm(folder.path, { recursive: true, force: true });
  return { id, bytes, commits };
}

async function removeRevision(folder: CacheFolder, id: string, revision: string): Promise<Removed | null> {
  const refs = join(folder.path, 'refs');
  const named = await commitOf(join(refs, ...revision.split('/')));
  const commit = named ?? revision;
  const snapshot = folder.snapshot(commit);
  if (commit.includes('/') || (await lstat(snapshot).catch(() => null)) === null) return null;
  for (const name of await names(refs, true))
    if ((await commitOf(join(refs, name))) === commit) await rm(join(refs, name), { force: true });
  const before = await sizeOf(folder.path);
  await rm(snapshot, { recursive: true, force: true });
  const snapshots = join(folder.path, 'snapshots');
  const kept = new Set<string>();
  for (const name of await names(snapshots, true)) {
    const target = await readlink(join(snapshots, name)).catch(() => null);
    if (target !== null) kept.add(basename(target));
  }
  const blobs = join(folder.path, 'blobs');
  for (const name of await names(blobs))
    if (/^[0-9a-f]{40,64}$/.test(name) && !kept.has(name)) await rm(join(blobs, name), { force: true });
  const bytes = before - (await sizeOf(folder.path));
  if ((await names(snapshots)).length === 0) return { id, bytes: bytes + (await removeAll(folder, id)).bytes, commits: [commit] };
  return { id, bytes, commits: [commit] };
}

async function names(folder: string, deep = false): Promise<readonly string[]> {
  return readdir(folder, { recursive: deep }).catch(() => []);
}

async function commitOf(ref: string): Promise<string | null> {
  const text = await readFile(ref, 'utf8').catch(() => '');
  return /^[\w-]{1,128}$/.test(text.trim()) ? text.trim() : null;
}

/** Bytes of the files below a folder; links have none of their own. */
async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []))
    if (entry.isFile()) bytes += (await lstat(join(entry.parentPath, entry.name)).catch(() => null))?.size ?? 0;
  return bytes;
}
