/**
 * Public keys of clients on disk: NAME.pem, an Ed25519 key as PEM, with a line "# scopes: ..." above it. The name is the keyid of the
 * signatures. Others may read such a file and must not be able to write it. Used by the daemon and by `inferd key`.
 */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Scope, scopeNames } from '../../../rpc/scope.js';
import { createFile, FileRefusal, readChecked } from './private-file.js';
import type { BadRecord } from './token-records.js';

export interface KeyRecord {
  /** The keyid of its signatures. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  readonly key: KeyObject;
  /** The whole file: another text is another record. */
  readonly text: string;
}

export const KEY_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const MAX_KEYS = 1000;
const MAX_FILE_BYTES = 8192;

/** @throws FileRefusal, whose message goes on after the name of the file */
export function readKeyFile(file: string): KeyRecord {
  // Links are followed: secrets that are mounted into a container are links.
  const text = readChecked(file, { limit: MAX_FILE_BYTES, forbidden: 0o022, links: true });
  return parseKey(basename(file).replace(/\.pem$/, ''), text);
}

/** @throws FileRefusal */
export function parseKey(name: string, text: string): KeyRecord {
  if (!KEY_NAME.test(name)) throw new FileRefusal('has a name that is no key id: letters, digits, ".", "_" and "-", at most 64.');
  if (text.includes('PRIVATE KEY')) throw new FileRefusal('holds a private key; the daemon needs the public one: openssl pkey -pubout');
  const scopes = (/^# scopes:(.*)$/m.exec(text)?.[1] ?? 'infer').split(',').map((scope) => scope.trim());
  if (!scopes.every((scope): scope is Scope => scopeNames.includes(scope as Scope)))
    throw new FileRefusal('names a scope that does not exist.');
  let key: KeyObject;
  try {
    key = createPublicKey(text.slice(Math.max(0, text.indexOf('-----BEGIN'))));
  } catch {
    throw new FileRefusal('is not a public key in PEM.');
  }
  if (key.asymmetricKeyType !== 'ed25519') throw new FileRefusal(`holds a key of type ${key.asymmetricKeyType}; ed25519 is needed.`);
  return { name, scopes, key, text };
}

/** All keys of a folder by name, and what is there besides. A folder that is not there has none. @throws the error of the system */
export function readKeys(folder: string): { readonly keys: readonly KeyRecord[]; readonly bad: readonly BadRecord[] } {
  const keys: KeyRecord[] = [];
  const bad: BadRecord[] = [];
  for (const file of names(folder)) {
    try {
      keys.push(readKeyFile(join(folder, file)));
    } catch (error) {
      if (!(error instanceof FileRefusal)) throw error;
      if (!error.gone) bad.push({ file, reason: error.message });
    }
  }
  return { keys, bad };
}

/** Adds a key. @throws the error of the system, EEXIST where the name is taken */
export function addKey(folder: string, { name, scopes, key }: Omit<KeyRecord, 'text'>): void {
  const pem = key.export({ type: 'spki', format: 'pem' });
  createFile(join(folder, `${name}.pem`), `# scopes: ${scopes.join(', ')}\n${pem}`, 0o600);
}

/** False when there is no such key. @throws the error of the system */
export function removeKey(folder: string, name: string): boolean {
  if (!KEY_NAME.test(name)) return false;
  try {
    rmSync(join(folder, `${name}.pem`));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

function names(folder: string): readonly string[] {
  try {
    const all = readdirSync(folder).filter((file) => file.endsWith('.pem') && !file.startsWith('.'));
    return all.sort().slice(0, MAX_KEYS);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
