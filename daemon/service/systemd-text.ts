/**
 * Writes values the way systemd reads them back (systemd.syntax, systemd.service, "Specifiers" of systemd.unit). Pure.
 *
 * Three grammars meet in a unit. A list of words (ExecStart=, Environment=) knows quotes and C escapes; a list of paths (ReadWritePaths=)
 * knows quotes, and a backslash that takes the next character as it is; a single path (EnvironmentFile=, ListenStream=) is the rest of its
 * line. A percent sign begins a specifier everywhere. Variables ($HOME) are replaced in command lines only, unless the line begins with
 * ":", as ours do.
 */

/** Letters that mean nothing to systemd, wherever in a word they stand. */
const PLAIN = /^[A-Za-z0-9_./=,:@+~^-]+$/;
/** Those of ASCII; the later ones are letters to systemd, of two bytes each. */
const CONTROL = /(?![\x80-\x9f])\p{Cc}/gu;

/** One word of a list: quoted where it has to be. */
export function word(text: string): string {
  if (PLAIN.test(text)) return text;
  const escaped = text
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')
    .replaceAll('%', '%%')
    .replaceAll(CONTROL, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return `"${escaped}"`;
}

/** One path of a list; null where there is no way to write it. */
export function pathWord(path: string): string | null {
  return /\p{Cc}/u.test(path) ? null : word(path);
}

/** A path that is the rest of a line; null where there is no way to write it. */
export function restOfLine(path: string): string | null {
  // White space at the end of a line, and a backslash there, which joins it with the next one, are lost.
  return /\p{Cc}|[\s\\]$/u.test(path) ? null : path.replaceAll('%', '%%');
}
