/**
 * Finds model snapshots in a Hugging Face hub cache, in the layout that its own tools write, so that models are shared with them:
 *
 *   CACHE/models--ORG--NAME/refs/REVISION        text: a commit
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/    files, usually links into ../../blobs
 *
 * and what an unfinished `inferd pull` has left there (daemon/hub writes it; the names and forms of both sides stand here):
 *
 *   CACHE/models--ORG--NAME/.inferd-pull.json    what it fetches
 *   CACHE/models--ORG--NAME/blobs/HASH.inferd-journal   which blocks of a file have come
 *
 * Read only. Names and revisions come from users, so both are checked against a pattern before they become part of a path, and what
 * is found must really lie inside the cache. Called by model-folder.ts.
 */
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { join, sep } from 'node:path';

/** What a Hugging Face id looks like; nothing else ever becomes a path in the cache. */
export const modelIdPattern = /^[A-Za-z0-9][\w.-]{0,95}(\/[A-Za-z0-9][\w.-]{0,95})?$/;
const revisionPattern = /^[A-Za-z0-9][\w./-]{0,127}$/;

/** Most folders of a cache that are looked at. */
const maxFolders = 10_000;

export interface CachedModel {
  /** "org/name" */
  readonly id: string;
  readonly commit: string;
  /** Branches and tags that point to this commit. */
  readonly refs: readonly string[];
  /** Folder of the snapshot. */
  readonly path: string;
}

/** The folder of a model in the cache. */
export const repoFolderName = (id: string): string => `models--${id.replaceAll('/', '--')}`;

/** Unit of the journal of a download, bytes: the most that a connection fetches again after a kill. */
export const blockBytes = 64 * 1024;
export const partialSuffix = '.inferd-partial';
export const journalSuffix = '.inferd-journal';
export const journalHeadBytes = 64;
export const pullFileName = '.inferd-pull.json';
export const numBlocks = (size: number): number => Math.ceil(size / blockBytes);
/** The first bytes of the journal of a file of `size` bytes; a bit a block follows. */
export const journalHead = (size: number): string => [`inferd-journal 1 ${size} ${blockBytes}`.padEnd(journalHeadBytes - 1), ''].join('\n');

/** A pull that is not finished: it runs, or goes on when somebody asks for it again. */
export interface UnfinishedPull {
  readonly id: string;
  readonly revision: string;
  readonly commit: string;
  /** Folder of the model in the cache. */
  readonly path: string;
  /** Of its files, bytes. */
  readonly totalBytes: number;
  /** Of these on the disk. */
  readonly receivedBytes: number;
}

/** What the file of a pull says. */
export interface PullFile {
  readonly id: string;
  readonly revision: string;
  readonly commit: string;
  readonly blobs: readonly { readonly hash: string; readonly size: number }[];
}

/** True when `path` exists and, with all links followed, lies inside `root`. */
export function isInside(root: string, path: string): boolean {
  try {
    const real = realpathSync(path);
    const base = realpathSync(root);
    return real === base || real.startsWith(base.endsWith(sep) ? base : base + sep);
  } catch {
    return false;
  }
}

/** The snapshot of `id` at `revision` (a branch, tag or commit), or null when the cache does not have it. */
export function findSnapshot(cache: string, id: string, revision: string): string | null {
  if (!modelIdPattern.test(id) || !revisionPattern.test(revision) || `${id}/${revision}`.includes('..')) return null;
  const folder = join(cache, repoFolderName(id));
  const commit = readCommit(join(folder, 'refs', revision)) ?? revision;
  const path = join(folder, 'snapshots', commit);
  return isDirectory(path) && isInside(cache, path) ? path : null;
}

/** Every snapshot in the cache, by id, then commit. An unreadable folder is left out. */
export function listSnapshots(cache: string): readonly CachedModel[] {
  const found: CachedModel[] = [];
  for (const folder of names(cache)) {
    const id = /^models--(.+)$/.exec(folder)?.[1]?.replace('--', '/');
    if (id === undefined || !modelIdPattern.test(id)) continue;
    const refs = refNames(join(cache, folder, 'refs'));
    for (const commit of names(join(cache, folder, 'snapshots'))) {
      const path = join(cache, folder, 'snapshots', commit);
      if (isDirectory(path) && isInside(cache, path))
        found.push({ id, commit, path, refs: refs.filter((ref) => readCommit(join(cache, folder, 'refs', ref)) === commit) });
    }
  }
  return found;
}

/** Every pull in the cache that is not finished. What cannot be read is left out. */
export function listUnfinished(cache: string): readonly UnfinishedPull[] {
  return names(cache).flatMap((folder) => {
    const path = join(cache, folder);
    const pull = /^models--/.test(folder) ? readPull(join(path, pullFileName)) : null;
    if (pull === null || repoFolderName(pull.id) !== folder) return [];
    const sum = (bytes: (blob: PullFile['blobs'][number]) => number): number => pull.blobs.reduce((all, blob) => all + bytes(blob), 0);
    const { id, revision, commit } = pull;
    return [{ id, revision, commit, path, totalBytes: sum(({ size }) => size), receivedBytes: sum((blob) => receivedBytes(path, blob)) }];
  });
}

const maxPullBytes = 16 * 2 ** 20;

function readPull(file: string): PullFile | null {
  try {
    const stat = statSync(file);
    if (!stat.isFile() || stat.size > maxPullBytes) return null;
    const { id, revision, commit, blobs } = JSON.parse(readFileSync(file, 'utf8')) as Partial<Record<keyof PullFile, unknown>>;
    if (typeof id !== 'string' || typeof revision !== 'string' || typeof commit !== 'string' || !Array.isArray(blobs)) return null;
    if (!modelIdPattern.test(id)) return null;
    const sound = blobs.filter(
      (blob: Partial<PullFile['blobs'][number]> | null): blob is PullFile['blobs'][number] =>
        typeof blob?.hash === 'string' && /^[0-9a-f]{40,64}$/.test(blob.hash) && Number.isSafeInteger(blob.size),
    );
    return { id, revision, commit, blobs: sound };
  } catch {
    return null;
  }
}

/** Bytes of a blob on the disk: all of them, or those of the blocks that its journal names. `folder`: of the model. */
export function receivedBytes(folder: string, { hash, size }: PullFile['blobs'][number]): number {
  const blob = join(folder, 'blobs', hash);
  try {
    if (statSync(blob).size === size) return size;
  } catch {
    // Not there yet.
  }
  try {
    const journal = readFileSync(`${blob}${journalSuffix}`);
    if (journal.subarray(0, journalHeadBytes).toString() !== journalHead(size)) return 0;
    let bytes = 0;
    for (let block = 0; block < numBlocks(size); block++)
      if (((journal[journalHeadBytes + (block >> 3)] ?? 0) & (1 << (block & 7))) !== 0)
        bytes += Math.min(blockBytes, size - block * blockBytes);
    return bytes;
  } catch {
    return 0;
  }
}

/** Names of refs; a ref may hold slashes ("refs/pr/1"), so one level of folders is opened. */
function refNames(folder: string): string[] {
  return names(folder).flatMap((name) => {
    const inner = join(folder, name);
    return isDirectory(inner) ? names(inner).map((n) => `${name}/${n}`) : [name];
  });
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder).sort().slice(0, maxFolders);
  } catch {
    return [];
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function readCommit(file: string): string | null {
  try {
    const stat = statSync(file);
    if (!stat.isFile() || stat.size > 256) return null;
    const commit = readFileSync(file, 'utf8').trim();
    return /^[\w-]{1,128}$/.test(commit) ? commit : null;
  } catch {
    return null;
  }
}
