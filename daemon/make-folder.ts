/**
 * Makes a folder and those above it that are missing. In place of Node's own recursive mkdir, which in Node 20 tries for ever where the
 * kernel answers every attempt with ENOENT, as below /proc.
 */
import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** `mode`: of those that are made. @throws the error of the system */
export function makeFolder(path: string, mode = 0o777): void {
  const missing = tryMake(path, mode);
  if (missing === null) return;
  if (dirname(path) === path) throw missing;
  makeFolder(dirname(path), mode);
  const still = tryMake(path, mode);
  if (still !== null) throw still;
}

/** Null when it is there now, else the error which says that the folder above is missing. */
function tryMake(path: string, mode: number): Error | null {
  try {
    mkdirSync(path, mode);
    return null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return error as Error;
    if (code === 'EEXIST' && statSync(path).isDirectory()) return null;
    throw error;
  }
}
