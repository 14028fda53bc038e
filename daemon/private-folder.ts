/** A folder that only its user may enter: the runtime folder, the records of tokens. */
import { chmodSync, lstatSync } from 'node:fs';
import { EXIT } from './exit-code.js';
import { makeFolder } from './make-folder.js';
import { StartError } from './start-error.js';

/**
 * Makes it (mode 0700), or takes it back from others where it is ours.
 * @param what as in "the runtime folder"
 * @throws StartError when it is not a folder, or somebody else's
 */
export function makePrivateFolder(dir: string, what: string): void {
  try {
    makeFolder(dir, 0o700);
    const stat = lstatSync(dir);
    if (!stat.isDirectory()) throw new StartError(`The ${what} ${dir} is not a folder.`, EXIT.noPermission);
    if (process.getuid === undefined) return;
    if (stat.uid !== process.getuid()) throw new StartError(`The ${what} ${dir} belongs to another user.`, EXIT.noPermission);
    if ((stat.mode & 0o077) !== 0) chmodSync(dir, 0o700);
  } catch (error) {
    if (error instanceof StartError) throw error;
    throw new StartError(`The ${what} ${dir} cannot be used: ${(error as Error).message}`, EXIT.noPermission, error);
  }
}
