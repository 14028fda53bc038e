/**
 * The daemon's own token: 256 random bits in a file of the runtime folder that only the user can read, made at the first start. Whoever
 * may read the user's files may do all: the command line shows this token.
 */
import { randomBytes } from 'node:crypto';
import { EXIT } from '../../exit-code.js';
import { StartError } from '../../start-error.js';
import { createFile, FileRefusal, readChecked } from './private-file.js';

export const TOKEN_BYTES = 32;
/** Longer files are not tokens. */
const MAX_TOKEN_FILE_BYTES = 1024;

/**
 * Reads a token file, or makes one. The folder must exist.
 * @throws StartError when the file is a link, not a regular file, or open to group or world.
 */
export function loadOrCreateToken(file: string): string {
  const made = randomBytes(TOKEN_BYTES).toString('base64url');
  try {
    createFile(file, `${made}\n`, 0o600);
    return made;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
      throw new StartError(`The token file ${file} cannot be made: ${(error as Error).message}`, EXIT.noPermission, error);
    }
  }
  return readToken(file);
}

function readToken(file: string): string {
  let token: string;
  try {
    token = readChecked(file, { limit: MAX_TOKEN_FILE_BYTES, forbidden: 0o077 }).trim();
  } catch (error) {
    if (!(error instanceof FileRefusal)) throw error;
    if (error.message.startsWith('is larger')) token = '';
    else throw new StartError(`The token file ${file} ${error.message}`, EXIT.noPermission, error);
  }
  if (!/^[A-Za-z0-9._~+/=-]{16,512}$/.test(token)) {
    throw new StartError(`The token file ${file} must hold one token of 16 to 512 letters, digits or ._~+/=-`, EXIT.config);
  }
  return token;
}
