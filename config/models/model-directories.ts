/**
 * The models of models.directories, by name: sub-folders that hold one, and *.gguf files by their name without the ending, a split one by
 * what its parts have in common. Names come from clients, so that each is one plain name and leads nowhere else. Reads names only.
 * Called by model-folder.ts and by the daemon's catalogue.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isKind } from '../file-kind.js';
import { ggufFilesIn, ggufName } from '../gguf/files.js';

/** Entries of a directory that are looked at. */
const MAX_ENTRIES = 1000;

const plainName = /^[A-Za-z0-9][\w.+-]{0,127}$/;

/** Names of the models in a directory, sorted; none of one that cannot be read. */
export function modelNames(directory: string): readonly string[] {
  const names = entries(directory).flatMap((entry) => {
    const name = ggufName(entry) ?? entry;
    return findInDirectory(directory, name) === null ? [] : [name];
  });
  return [...new Set(names)].sort();
}

/** Path of the folder or the GGUF file (of a split one the first part) that a name means in a directory; null when there is none. */
export function findInDirectory(directory: string, name: string): string | null {
  if (!plainName.test(name)) return null;
  const folder = join(directory, name);
  if (isKind(folder, 'directory') && (isKind(join(folder, 'config.json'), 'file') || ggufFilesIn(folder).length > 0)) return folder;
  const whole = `${folder}.gguf`;
  if (ggufName(`${name}.gguf`) === name && isKind(whole, 'file')) return whole;
  const first = entries(directory).find((entry) => ggufName(entry) === name && isKind(join(directory, entry), 'file'));
  return first === undefined ? null : join(directory, first);
}

function entries(directory: string): readonly string[] {
  try {
    return readdirSync(directory).sort().slice(0, MAX_ENTRIES);
  } catch {
    return [];
  }
}
