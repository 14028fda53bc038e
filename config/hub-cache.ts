/**
 * Finds model snapshots in a Hugging Face hub cache, in the layout that its own tools write, so that models are shared with them:
 *
 *   CACHE/models--ORG--NAME/refs/REVISION        text: a commit
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/    files, usually links into ../../blobs
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

const cachedName = (id: string): string => `models--${id.replaceAll('/', '--')}`;

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
  const folder = join(cache, cachedName(id));
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
    if (statSync(file).size > 256) return null;
    const commit = readFileSync(file, 'utf8').trim();
    return /^[\w-]{1,128}$/.test(commit) ? commit : null;
  } catch {
    return null;
  }
}
