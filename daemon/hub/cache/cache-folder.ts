/**
 * A model's folder in the Hugging Face cache, as its own tools write it:
 *
 *   CACHE/models--ORG--NAME/blobs/HASH                  the content of a file, under its hash
 *                           blobs/HASH.inferd-partial   what has come of one, with HASH.inferd-journal beside it (partial-file.ts)
 *                           snapshots/COMMIT/PATH       a link to ../../blobs/HASH
 *                           refs/REVISION               the commit, as text
 *                           .inferd-pull.json           a pull that is not finished (config/models/hub-cache.ts reads it)
 *   CACHE/.locks/models--ORG--NAME/                     who writes (claim.ts)
 *
 * Links and the ref come last, so that a model which can be found is whole. Below the cache nothing is written through a link that somebody
 * put there: folders must be real ones, and files are replaced by rename.
 */
import { copyFile, lstat, mkdir, readlink, realpath, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { partialSuffix, pullFileName, repoFolderName } from '../../../config/models/hub-cache.js';
import { makeFolder } from '../../make-folder.js';
import { PullError, systemCode } from '../error.js';

let counter = 0;
/** A name beside `path` that no other writer has. */
const fresh = (path: string): string => `${path}.${process.pid}.${counter++}.inferd-tmp`;

export class CacheFolder {
  /** The cache, without links. */
  readonly cache: string;
  /** Of the model. */
  readonly path: string;

  readonly #claims: string;

  private constructor(cache: string, id: string) {
    this.cache = cache;
    this.path = join(cache, repoFolderName(id));
    this.#claims = join(cache, '.locks', repoFolderName(id));
  }

  /** Makes the cache where it is missing. Nothing of the model is made yet. @throws PullError cache */
  static async open(cache: string, id: string): Promise<CacheFolder> {
    try {
      makeFolder(cache);
      return new CacheFolder(await realpath(cache), id);
    } catch (error) {
      throw cacheError(error, cache);
    }
  }

  /** Where the claims of this model's writers lie. */
  async claims(): Promise<string> {
    await this.#folder(this.#claims);
    return this.#claims;
  }

  /** Makes the folders that a pull writes to. @throws PullError cache */
  async prepare(): Promise<void> {
    for (const name of ['blobs', 'refs', 'snapshots']) await this.#folder(join(this.path, name));
  }

  blob(hash: string): string {
    return join(this.path, 'blobs', hash);
  }

  partial(hash: string): string {
    return `${this.blob(hash)}${partialSuffix}`;
  }

  /** Is the content there, in full length? A link in its place is none. */
  async hasBlob(hash: string, size: number): Promise<boolean> {
    try {
      const stat = await lstat(this.blob(hash));
      return stat.isFile() && stat.size === size;
    } catch {
      return false;
    }
  }

  snapshot(commit: string): string {
    return join(this.path, 'snapshots', commit);
  }

  /** Makes a file of a snapshot lead to its content. */
  async link(commit: string, path: string, hash: string): Promise<void> {
    const at = join(this.snapshot(commit), ...path.split('/'));
    await this.#folder(dirname(at));
    const target = relative(dirname(at), this.blob(hash));
    if ((await readlink(at).catch(() => null)) === target) return;
    const made = fresh(at);
    try {
      // Systems without links for everybody get a copy.
      await symlink(target, made).catch(() => copyFile(this.blob(hash), made));
      await rename(made, at);
    } catch (error) {
      await rm(made, { force: true });
      throw cacheError(error, at);
    }
  }

  /** Makes a branch or tag point to a commit. A revision that is the commit has none. */
  async writeRef(revision: string, commit: string): Promise<void> {
    if (revision === commit) return;
    const at = join(this.path, 'refs', ...revision.split('/'));
    await this.#folder(dirname(at));
    await this.#write(at, commit);
  }

  /** Says what a pull is about to do, for those who look meanwhile, or after its end by force. */
  async writePull(pull: object): Promise<void> {
    await this.#write(join(this.path, pullFileName), `${JSON.stringify(pull)}\n`);
  }

  async endPull(): Promise<void> {
    await rm(join(this.path, pullFileName), { force: true });
  }

  async #write(at: string, text: string): Promise<void> {
    const made = fresh(at);
    try {
      await writeFile(made, text, { flag: 'wx' });
      await rename(made, at);
    } catch (error) {
      await rm(made, { force: true });
      throw cacheError(error, at);
    }
  }

  /** Makes a folder below the cache, each part of it a real one. */
  async #folder(path: string): Promise<void> {
    let at = this.cache;
    for (const part of relative(this.cache, path).split(sep)) {
      at = join(at, part);
      try {
        await mkdir(at).catch((error: unknown) => {
          if (systemCode(error) !== 'EEXIST') throw error;
        });
        const stat = await lstat(at);
        if (!stat.isDirectory())
          throw new PullError(
            'cache',
            `${at} is ${stat.isSymbolicLink() ? 'a link' : 'no folder'}, and nothing is written through it; remove it`,
          );
      } catch (error) {
        throw cacheError(error, at);
      }
    }
  }
}

/** Removes a file or a link, never what it leads to. */
export async function removeFile(path: string): Promise<void> {
  await unlink(path).catch((error: unknown) => {
    if (systemCode(error) !== 'ENOENT') throw cacheError(error, path);
  });
}

/** What a system error of the cache means to the user. A sentence is returned as it is. */
export function cacheError(error: unknown, path: string): Error {
  if (error instanceof PullError) return error;
  const code = systemCode(error);
  if (code === null) return error instanceof Error ? error : new Error(String(error));
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return new PullError(
      'no_space',
      `The disk of the cache is full (${path}); make room, or set HF_HOME to another disk, and pull again: what came is kept`,
      error,
    );
  return new PullError(
    'cache',
    `The cache cannot be written (${code}: ${path}); check its permissions, or set HF_HOME to another folder`,
    error,
  );
}
