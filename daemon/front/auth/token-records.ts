/**
 * Tokens of clients on disk: a folder with a file for each, mode 0600, that holds what the token may do and its SHA-256.
 *
 * A file each, put in place by rename and taken away by unlink, needs no lock: commands that run at the same time never write the same
 * file. A plain hash is right here, where a password would need a slow one: a token is 256 random bits, so there is no list of likely ones
 * to try. When a token was last used is the file's time of change, which a daemon sets at most once a minute. Used by the daemon and by
 * `inferd token`.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { type Scope, scopeNames } from '../../../rpc/scope.js';
import { TOKEN_BYTES } from './own-token.js';
import { FileRefusal, placeFile, readChecked } from './private-file.js';

export interface TokenRecord {
  /** Names the token in lists and in `revoke`; tells nothing of it. */
  readonly id: string;
  /** For people; may be empty. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** Milliseconds since the epoch. */
  readonly createdMs: number;
  /** Null: never. */
  readonly expiresMs: number | null;
  /** SHA-256 of the token, hex. */
  readonly sha256: string;
}

/** A file that is no usable record, and why. */
export interface BadRecord {
  readonly file: string;
  readonly reason: string;
}

/** Files in the folder, at most: each is read when it changes. */
export const MAX_TOKENS = 1000;
export const MAX_NAME = 64;
const MAX_FILE_BYTES = 4096;
const ID = /^[a-z0-9]{8}$/;
const FILE = /^([a-z0-9]{8})\.json$/;

/** Secret scanners know a token by this beginning. */
const PREFIX = 'inferd_';

export const tokenDigest = (token: string): string => createHash('sha256').update(token).digest('hex');

/** Makes a token and its record. The token itself is kept nowhere. @throws the error of the system */
export function createRecord(
  folder: string,
  wish: Pick<TokenRecord, 'name' | 'scopes' | 'expiresMs'>,
  nowMs: number,
): { readonly record: TokenRecord; readonly token: string } {
  const token = PREFIX + randomBytes(TOKEN_BYTES).toString('base64url');
  const id = randomBytes(5).toString('hex').slice(0, 8);
  const record: TokenRecord = { ...wish, id, createdMs: nowMs, sha256: tokenDigest(token) };
  placeFile(join(folder, `${id}.json`), `${JSON.stringify(asFile(record), null, 2)}\n`, 0o600);
  return { record, token };
}

/** All records, oldest first, and what is there besides. A folder that is not there has none. @throws the error of the system */
export function readRecords(folder: string): { readonly records: readonly TokenRecord[]; readonly bad: readonly BadRecord[] } {
  const records: TokenRecord[] = [];
  const bad: BadRecord[] = [];
  for (const file of names(folder)) {
    const id = FILE.exec(file)?.[1];
    try {
      if (id !== undefined) records.push(parse(id, readChecked(join(folder, file), { limit: MAX_FILE_BYTES, forbidden: 0o077 })));
    } catch (error) {
      if (!(error instanceof FileRefusal)) throw error;
      if (!error.gone) bad.push({ file, reason: error.message }); // else it was revoked while we read
    }
  }
  return { records: records.sort((a, b) => a.createdMs - b.createdMs || (a.id < b.id ? -1 : 1)), bad };
}

/** False when there is no such token. @throws the error of the system */
export function removeRecord(folder: string, id: string): boolean {
  if (!ID.test(id)) return false;
  try {
    rmSync(join(folder, `${id}.json`));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/** Notes that a token was used. What cannot be noted is not worth an error. */
export function noteUse(folder: string, id: string, nowMs: number): void {
  try {
    utimesSync(join(folder, `${id}.json`), nowMs / 1000, nowMs / 1000);
  } catch {
    // Revoked meanwhile, or a folder that cannot be written.
  }
}

/** Milliseconds since the epoch; null: never, as far as was noted. */
export function lastUse(folder: string, { id, createdMs }: TokenRecord): number | null {
  try {
    const { mtimeMs } = statSync(join(folder, `${id}.json`));
    return mtimeMs > createdMs + 1000 ? Math.round(mtimeMs) : null;
  } catch {
    return null;
  }
}

function names(folder: string): readonly string[] {
  try {
    return readdirSync(folder).sort().slice(0, MAX_TOKENS);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

function asFile({ id, name, scopes, createdMs, expiresMs, sha256 }: TokenRecord): object {
  const time = (ms: number) => new Date(ms).toISOString();
  return { id, name, scopes, created: time(createdMs), expires: expiresMs === null ? null : time(expiresMs), sha256 };
}

/** @throws FileRefusal */
function parse(id: string, text: string): TokenRecord {
  try {
    const { name, scopes, created, expires, sha256, ...rest } = JSON.parse(text) as Partial<Record<string, unknown>>;
    const [createdMs, expiresMs] = [time(created), expires === null ? null : time(expires)];
    const known = Array.isArray(scopes) && scopes.every((scope): scope is Scope => scopeNames.includes(scope as Scope));
    if (rest['id'] !== id || typeof name !== 'string' || !known || typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(sha256))
      throw new TypeError('not a record');
    return { id, name, scopes, createdMs, expiresMs, sha256 };
  } catch {
    throw new FileRefusal('is not the record of a token.');
  }
}

/** @throws TypeError */
function time(value: unknown): number {
  const ms = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  if (Number.isNaN(ms)) throw new TypeError('not a time');
  return ms;
}
