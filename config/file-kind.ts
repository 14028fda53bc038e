/** What lies at a path, links followed. Blocks as long as one look at the file system does. */
import { statSync } from 'node:fs';

/** False as well where nothing is, or nothing that may be looked at. */
export function isKind(path: string, kind: 'file' | 'directory'): boolean {
  try {
    return kind === 'file' ? statSync(path).isFile() : statSync(path).isDirectory();
  } catch {
    return false;
  }
}
