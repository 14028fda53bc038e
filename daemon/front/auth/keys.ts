/**
 * The keys that the running daemon knows: those of `auth.trusted_keys`, and those of the folder of `inferd key`. A key that is removed ends
 * what it opened. Main thread.
 */
import type { KeyObject } from 'node:crypto';
import { errorFields, type Log } from '../../../actors/runtime/log.js';
import { EXIT } from '../../exit-code.js';
import { StartError } from '../../start-error.js';
import { Credential } from './credential.js';
import { FolderWatch } from './folder-watch.js';
import { type KeyRecord, readKeyFile, readKeys } from './key-records.js';
import { FileRefusal } from './private-file.js';
import { Nonces } from './signature/nonces.js';

export interface KnownKey {
  readonly key: KeyObject;
  readonly credential: Credential;
  readonly nonces: Nonces;
  readonly text: string;
}

export interface KeysOptions {
  readonly folder: string;
  /** Files of auth.trusted_keys. */
  readonly files: readonly string[];
  /** Nonces of one key that are remembered. */
  readonly maxNonces: number;
  readonly log: Log;
}

export class Keys {
  readonly #options: KeysOptions;
  readonly #watch: FolderWatch;
  #known = new Map<string, KnownKey>();

  /** @throws StartError when a file of auth.trusted_keys cannot be used */
  constructor(options: KeysOptions) {
    this.#options = options;
    const trusted = options.files.map((file) => trustedKey(file));
    const twice = trusted.find(({ name }, i) => trusted.findIndex((other) => other.name === name) !== i);
    if (twice !== undefined) throw new StartError(`auth.trusted_keys names two files for the key "${twice.name}".`, EXIT.config);
    this.#watch = new FolderWatch(options.folder, () => this.#reload(trusted));
    this.#reload(trusted);
  }

  get(keyid: string): KnownKey | null {
    return this.#known.get(keyid) ?? null;
  }

  close(): void {
    this.#watch.close();
  }

  #reload(trusted: readonly KeyRecord[]): void {
    const { folder, log, maxNonces } = this.#options;
    let read: ReturnType<typeof readKeys>;
    try {
      read = readKeys(folder);
    } catch (error) {
      log.error({ folder, ...errorFields(error) }, 'the keys could not be read; those known before stay');
      return;
    }
    for (const { file, reason } of read.bad) log.warn({ file }, `a key file is not used: it ${reason}`);
    const next = new Map<string, KnownKey>();
    for (const { name, key, scopes, text } of [...read.keys, ...trusted]) {
      const known = this.#known.get(name);
      const fresh = () => ({ key, text, credential: new Credential(`key ${name}`, new Set(scopes)), nonces: new Nonces(maxNonces) });
      next.set(name, known?.text === text ? known : fresh());
    }
    const before = this.#known;
    this.#known = next;
    for (const [name, known] of before) {
      if (next.get(name) === known) continue;
      log.info({ key: name }, 'a key was removed');
      known.credential.end();
    }
  }
}

function trustedKey(file: string): KeyRecord {
  try {
    return readKeyFile(file);
  } catch (error) {
    if (!(error instanceof FileRefusal)) throw error;
    throw new StartError(`The key file ${file} of auth.trusted_keys ${error.message}`, EXIT.config, error);
  }
}
