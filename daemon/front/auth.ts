/**
 * Who may call: nobody is asked (mode none, loopback only), or every client shows the daemon's token (mode token).
 *
 * The token is 256 random bits in a file that only the user can read; this process keeps its SHA-256 digest for comparing. It travels
 * in `Authorization: Bearer ...` or, for browsers, which cannot set that header on a WebSocket, as the subprotocol `bearer.<token>`;
 * never in a URL, because URLs end up in logs and histories. Runs on the main thread.
 */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { closeSync, constants, fstatSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { isLoopback } from '../../config/check.js';
import type { Config } from '../../config/schema.js';
import { allScopes, type Scopes } from '../../rpc/scope.js';
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { Sender } from './gate.js';

const TOKEN_BYTES = 32;
/** Longer files are not tokens. */
const MAX_TOKEN_FILE_BYTES = 1024;
const BEARER_PROTOCOL = 'bearer.';

/**
 * What pages of listed origins may do where nobody shows who they are. Our own page may do all: no other page can send its Origin, and the
 * gate has checked the Host that makes it ours.
 */
const pageScopes: Scopes = new Set(['infer', 'metrics']);

export interface Auth {
  /** The token for our own client and for callers in this process; `null` in mode none. */
  readonly token: string | null;
  /** What the sender may do; null when the headers do not show the token. Takes the same time for every wrong token. */
  authorize(headers: IncomingHttpHeaders, sender: Sender): Scopes | null;
}

/**
 * Prepares `config.auth.mode`. In mode token, reads `tokenFile`, or makes it (mode 0600) when it is not there.
 * @throws StartError when mode and bind address do not go together, or the token file cannot be trusted.
 */
export function createAuth(config: Config, tokenFile: string): Auth {
  const { mode } = config.auth;
  if (mode === 'ed25519') throw new StartError('auth.mode = "ed25519" is not supported yet; use "token".', EXIT.config);
  if (mode === 'none') {
    if (!isLoopback(config.server.host)) {
      throw new StartError(
        `server.host = "${config.server.host}" can be reached by others and auth.mode is "none"; set auth.mode = "token".`,
        EXIT.config,
      );
    }
    return { token: null, authorize: (_, sender) => (sender === 'other page' ? pageScopes : allScopes) };
  }
  const token = loadOrCreateToken(tokenFile);
  const expected = digest(token);
  return {
    token,
    authorize: (headers) => {
      const shown = shownToken(headers);
      return shown !== null && timingSafeEqual(digest(shown), expected) ? allScopes : null;
    },
  };
}

/** The token a client shows, by header or by subprotocol; `null` when it shows none. */
export function shownToken(headers: IncomingHttpHeaders): string | null {
  const header = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  if (header !== undefined) return header;
  const protocols = headers['sec-websocket-protocol']?.split(',').map((p) => p.trim()) ?? [];
  const bearer = protocols.find((p) => p.startsWith(BEARER_PROTOCOL));
  return bearer === undefined ? null : bearer.slice(BEARER_PROTOCOL.length);
}

/**
 * Reads a token file, or makes one. The folder must exist.
 * @throws StartError when the file is a link, not a regular file, or open to group or world.
 */
export function loadOrCreateToken(file: string): string {
  try {
    return createToken(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
      throw new StartError(`The token file ${file} cannot be made: ${(error as Error).message}`, EXIT.noPermission, error);
    }
  }
  return readToken(file);
}

function createToken(file: string): string {
  // O_EXCL refuses whatever is there, dangling links included; the mode holds from the first moment on.
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
  const fd = openSync(file, flags, 0o600);
  try {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    writeSync(fd, `${token}\n`);
    fsyncSync(fd);
    return token;
  } finally {
    closeSync(fd);
  }
}

function readToken(file: string): string {
  let fd: number;
  try {
    // O_NONBLOCK: opening a FIFO put here must not hang the start.
    fd = openSync(file, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const why = code === 'ELOOP' ? 'it is a symbolic link' : (error as Error).message;
    throw new StartError(`The token file ${file} cannot be used: ${why}.`, EXIT.noPermission, error);
  }
  try {
    // All checks on the open descriptor, so that nothing can be swapped between check and use.
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new StartError(`The token file ${file} is not a regular file.`, EXIT.noPermission);
    if (process.platform !== 'win32' && (stat.mode & 0o077) !== 0) {
      const mode = (stat.mode & 0o777).toString(8).padStart(4, '0');
      throw new StartError(`The token file ${file} has mode ${mode}; others must not be able to read it (chmod 600).`, EXIT.noPermission);
    }
    if (process.getuid !== undefined && stat.uid !== process.getuid() && process.getuid() !== 0) {
      throw new StartError(`The token file ${file} belongs to another user.`, EXIT.noPermission);
    }
    const token = stat.size > MAX_TOKEN_FILE_BYTES ? '' : readFileSync(fd, 'utf8').trim();
    if (!/^[A-Za-z0-9._~+/=-]{16,512}$/.test(token)) {
      throw new StartError(`The token file ${file} must hold one token of 16 to 512 letters, digits or ._~+/=-`, EXIT.config);
    }
    return token;
  } finally {
    closeSync(fd);
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
