/**
 * Which names of a repository may become paths on disk. Names come from strangers: one that leads out of its folder, or that some system
 * reads as another name, makes the whole repository refused, and nothing of it is written. Pure.
 */

/** Longest name of a file on the usual file systems, bytes; and of all in a path that we write. */
const maxNameBytes = 255;
const maxPathBytes = 1024;
const maxDepth = 32;

/** Names that Windows gives to devices, with any ending. */
const device = /^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)/i;

/** Why no honest repository has such a name, in words that follow "the name"; null of a usual one. */
export function hostileName(path: string): string | null {
  if (path === '') return 'is empty';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(path)) return 'has control characters';
  if (path.includes('\\')) return 'has a backslash';
  if (path.startsWith('/')) return 'is an absolute path';
  if (/^[A-Za-z]:/.test(path)) return 'names a drive';
  const parts = path.split('/');
  if (parts.includes('..') || parts.includes('.')) return 'leads out of its folder';
  if (parts.includes('')) return 'has an empty part';
  return null;
}

/** Why a file of this name cannot be written on every system, in words that follow "the name"; null when it can. */
export function unwritableName(path: string): string | null {
  const hostile = hostileName(path);
  if (hostile !== null) return hostile;
  const parts = path.split('/');
  if (parts.length > maxDepth) return `is nested deeper than ${maxDepth} folders`;
  if (Buffer.byteLength(path) > maxPathBytes || parts.some((part) => Buffer.byteLength(part) > maxNameBytes)) return 'is too long';
  if (parts.some((part) => device.test(part))) return 'is that of a device on Windows';
  if (parts.some((part) => /[ .]$/.test(part))) return 'has a part that ends in a dot or a space';
  if (/[<>:"|?*]/.test(path)) return 'has a character that not all systems take';
  return null;
}

/** Two files of one list that would be the same file, or of which one is a folder of the other, on some system; null when there are none. */
export function collision(paths: readonly string[]): readonly [string, string] | null {
  const fold = (path: string): string => path.normalize('NFC').toLowerCase();
  const files = new Map<string, string>();
  for (const path of paths) {
    const other = files.get(fold(path));
    if (other !== undefined) return [other, path];
    files.set(fold(path), path);
  }
  for (const path of paths) {
    const parts = path.split('/');
    for (let i = 1; i < parts.length; i++) {
      const folder = files.get(fold(parts.slice(0, i).join('/')));
      if (folder !== undefined) return [folder, path];
    }
  }
  return null;
}

/** A name from outside, short enough and without anything that a terminal would obey. */
export function shownName(name: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  return JSON.stringify(name.slice(0, 120).replace(/[\u0000-\u001f\u007f-\u009f]/g, '?'));
}
