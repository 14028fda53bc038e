/**
 * The tokens that the running daemon takes: its own and those of clients, found by their SHA-256.
 *
 * Looking a hash up in a table tells by its time nothing that helps to guess a token: who varies a token varies all bits of its hash, and
 * cannot choose one that shares more with a hash in the table. The whole hash is compared in constant time nevertheless, once for every
 * token shown, right or wrong, however many there are. Main thread.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { errorFields, type Log } from '../../../actors/runtime/log.js';
import { allScopes } from '../../../rpc/scope.js';
import { Credential } from './credential.js';
import { FolderWatch } from './folder-watch.js';
import { noteUse, readRecords, type TokenRecord } from './token-records.js';

/** Longest wait of a timer, ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;
const NOTE_MS = 60_000;

interface Entry {
  readonly digest: Buffer;
  readonly credential: Credential;
  /** Null: the daemon's own. */
  readonly record: TokenRecord | null;
  notedMs: number;
}

/** Compared with what is in no table. */
const NOBODY = Buffer.alloc(32);

export interface TokensOptions {
  /** The daemon's own token. */
  readonly own: string;
  /** Folder of the clients' records; null: only the own token counts. */
  readonly folder: string | null;
  readonly log: Log;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
}

export class Tokens {
  readonly #folder: string | null;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #own: Entry;
  readonly #watch: FolderWatch | null;
  #byDigest = new Map<string, Entry>();
  #expiry: NodeJS.Timeout | null = null;

  constructor({ own, folder, log, now = Date.now }: TokensOptions) {
    this.#folder = folder;
    this.#log = log;
    this.#now = now;
    this.#own = { digest: sha256(own), credential: new Credential('the daemon itself', allScopes), record: null, notedMs: 0 };
    this.#byDigest.set(this.#own.digest.toString('hex'), this.#own);
    // Watched before it is read, so that no change falls in between.
    this.#watch = folder === null ? null : new FolderWatch(folder, () => this.reload());
    this.reload();
  }

  /** Null: no token of ours, or one that has ended. */
  find(shown: string): Credential | null {
    const digest = sha256(shown);
    const found = this.#byDigest.get(digest.toString('hex'));
    if (!timingSafeEqual(digest, found?.digest ?? NOBODY) || found === undefined) return null;
    const { credential, record } = found;
    if (credential.ended) return null;
    const now = this.#now();
    if (credential.expiresMs <= now) {
      this.#expire();
      return null;
    }
    if (record !== null && this.#folder !== null && now - found.notedMs > NOTE_MS) {
      found.notedMs = now;
      noteUse(this.#folder, record.id, now);
    }
    return credential;
  }

  /** Reads the records again: what is no longer there, or says something else now, ends. */
  reload(): void {
    if (this.#folder === null) return;
    let read: ReturnType<typeof readRecords>;
    try {
      read = readRecords(this.#folder);
    } catch (error) {
      this.#log.error({ folder: this.#folder, ...errorFields(error) }, 'the tokens could not be read; those known before stay');
      return;
    }
    for (const { file, reason } of read.bad) this.#log.warn({ file }, `a token file is not used: it ${reason}`);
    const next = new Map([[this.#own.digest.toString('hex'), this.#own]]);
    for (const record of read.records) {
      const known = this.#byDigest.get(record.sha256);
      next.set(record.sha256, known !== undefined && same(known.record, record) ? known : entryOf(record));
    }
    const before = this.#byDigest;
    this.#byDigest = next;
    for (const [digest, entry] of before) {
      if (next.get(digest) === entry) continue;
      this.#log.info({ token: entry.record?.id }, 'a token was revoked');
      entry.credential.end();
    }
    this.#expire();
  }

  /** Nothing is watched any more; who is in stays in. */
  close(): void {
    this.#watch?.close();
    if (this.#expiry !== null) clearTimeout(this.#expiry);
  }

  /** Ends what has expired, and sets the clock for what expires next. */
  #expire(): void {
    if (this.#expiry !== null) clearTimeout(this.#expiry);
    this.#expiry = null;
    const now = this.#now();
    let next = Number.POSITIVE_INFINITY;
    for (const { credential, record } of this.#byDigest.values()) {
      if (credential.ended) continue;
      if (credential.expiresMs > now) next = Math.min(next, credential.expiresMs);
      else {
        this.#log.info({ token: record?.id }, 'a token has expired');
        credential.end();
      }
    }
    if (next < Number.POSITIVE_INFINITY) this.#expiry = setTimeout(() => this.#expire(), Math.min(next - now, MAX_TIMER_MS)).unref();
  }
}

function entryOf(record: TokenRecord): Entry {
  const credential = new Credential(`token ${record.id}`, new Set(record.scopes), record.expiresMs ?? Number.POSITIVE_INFINITY);
  return { digest: Buffer.from(record.sha256, 'hex'), credential, record, notedMs: 0 };
}

const same = (a: TokenRecord | null, b: TokenRecord): boolean => JSON.stringify(a) === JSON.stringify(b);
const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();
