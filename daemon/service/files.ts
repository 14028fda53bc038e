/**
 * The files of a service on disk: written whole, only where they differ, and never over a file that somebody else wrote.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { EXIT } from '../exit-code.js';
import { makeFolder } from '../make-folder.js';
import { StartError } from '../start-error.js';
import type { ServiceFile } from './manager.js';

/** In the head of every file that we write. */
const MARK = 'Written by "inferd service install"';

/** Writes what differs. Returns the paths that were written. @throws StartError where a file is somebody else's, or cannot be written */
export function writeServiceFiles(files: readonly ServiceFile[]): readonly string[] {
  const changed = files.filter(({ path, text }) => readOurs(path) !== text);
  for (const { path, text } of changed) {
    try {
      makeFolder(dirname(path));
      const fresh = `${path}.${process.pid}.tmp`;
      rmSync(fresh, { force: true });
      writeFileSync(fresh, text, { mode: 0o644, flag: 'wx' });
      renameSync(fresh, path);
    } catch (error) {
      throw new StartError(`${path} cannot be written (${(error as Error).message}); check its folder.`, EXIT.noPermission, error);
    }
  }
  return changed.map(({ path }) => path);
}

/** Removes those that are there. Returns their paths. @throws StartError where one is somebody else's, before any is removed */
export function removeServiceFiles(paths: readonly string[]): readonly string[] {
  const ours = paths.filter((path) => readOurs(path) !== null);
  for (const path of ours) rmSync(path, { force: true });
  return ours;
}

/** Our file's text, or null where there is none. */
export function readOurs(path: string): string | null {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new StartError(`${path} cannot be read (${(error as Error).message}); remove it first.`, EXIT.noPermission, error);
  }
  if (text.slice(0, 300).includes(MARK)) return text;
  throw new StartError(`${path} was not written by inferd and is left alone; move it away first.`, EXIT.noPermission);
}
