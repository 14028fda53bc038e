/**
 * Files that only their user may touch: read through one descriptor that was checked, so that nothing can be swapped between check and
 * use, and written so that a reader sees the old or the new one, never a part. For tokens and keys. Synchronous; small files.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';

export interface FileRules {
  /** Most bytes. */
  readonly limit: number;
  /** Permissions that group and world must not have: 0o077 for a secret, 0o022 for what may be read. */
  readonly forbidden: number;
  /** A link is followed instead of refused; what it leads to is checked all the same. */
  readonly links?: true;
}

/** Why a file is not used. `gone`: there is none. */
export class FileRefusal extends Error {
  readonly gone: boolean;
  constructor(message: string, gone = false) {
    super(message);
    this.gone = gone;
  }
}

/** @throws FileRefusal, whose message goes on after the name of the file */
export function readChecked(file: string, { limit, forbidden, links }: FileRules): string {
  let fd: number;
  try {
    // O_NONBLOCK: opening a FIFO put here must not hang.
    const follow = links ? 0 : (constants.O_NOFOLLOW ?? 0);
    fd = openSync(file, constants.O_RDONLY | follow | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new FileRefusal(code === 'ELOOP' ? 'cannot be used: it is a symbolic link.' : `cannot be used: ${message}.`, code === 'ENOENT');
  }
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new FileRefusal('is not a regular file.');
    if (process.platform !== 'win32' && (stat.mode & forbidden) !== 0) {
      const mode = (stat.mode & 0o777).toString(8).padStart(4, '0');
      const what = forbidden === 0o077 ? 'read it (chmod 600)' : 'write it (chmod go-w)';
      throw new FileRefusal(`has mode ${mode}; others must not be able to ${what}.`);
    }
    // Root's files are as good as the user's own: configuration may be installed by root for a service.
    const user = process.getuid?.();
    if (user !== undefined && user !== 0 && stat.uid !== user && stat.uid !== 0) throw new FileRefusal('belongs to another user.');
    if (stat.size > limit) throw new FileRefusal(`is larger than ${limit} bytes.`);
    return readFileSync(fd, 'utf8');
  } finally {
    closeSync(fd);
  }
}

/** Makes a file that is not there yet; the mode holds from the first moment on. @throws the error of the system, EEXIST where it is */
export function createFile(file: string, text: string, mode: number): void {
  // O_EXCL refuses whatever is there, dangling links included.
  const fd = openSync(file, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0), mode);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** Puts a whole file in place, over one that is there. Names that begin with a dot are of files in the making. */
export function placeFile(file: string, text: string, mode: number): void {
  const making = join(dirname(file), `.${randomBytes(8).toString('hex')}`);
  try {
    createFile(making, text, mode);
    renameSync(making, file);
  } catch (error) {
    rmSync(making, { force: true });
    throw error;
  }
}
