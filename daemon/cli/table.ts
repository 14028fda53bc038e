/**
 * Text for people: aligned tables, sizes, durations. Pure.
 */

const MIN_HANGING_COLUMNS = 12;

/**
 * Rows under a heading, columns two spaces apart. The first column names its rows and is aligned to the left, also where all names are
 * digits, as ids can be; of the others those of numbers alone are aligned to the right.
 */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = heading.map((h, i) => Math.max(displayWidth(h), ...rows.map((row) => displayWidth(row[i] ?? ''))));
  const numeric = heading.map(
    (_, i) => i > 0 && rows.length > 0 && rows.every((row) => /^[\d.,]*( ?([KMGT]iB|B|ms|s|%))?$|^-$/.test(row[i] ?? '')),
  );
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => {
        const pad = ' '.repeat(Math.max(0, (widths[i] ?? 0) - displayWidth(cell)));
        return numeric[i] ? pad + cell : cell + pad;
      })
      .join('  ')
      .trimEnd();
  return `${[heading, ...rows].map(line).join('\n')}\n`;
}

/**
 * `text` behind `head`, broken between words so that no line is wider than `columns`, and set below where it begins. Undefined (no
 * terminal), or too narrow for that: one line.
 */
export function hanging(head: string, text: string, columns: number | undefined): string {
  const indent = displayWidth(head);
  const room = (columns ?? Number.POSITIVE_INFINITY) - indent;
  if (room < MIN_HANGING_COLUMNS) return `${head}${text}\n`;
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line === '') lines[lines.length - 1] = word;
    else if (displayWidth(line) + 1 + displayWidth(word) <= room) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return `${head}${lines.join(`\n${' '.repeat(indent)}`)}\n`;
}

/** Columns of a terminal that a text takes, near enough: wide East Asian characters and emoji take two. */
function displayWidth(text: string): number {
  let width = 0;
  for (const c of text)
    width += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f300}-\u{1faff}]/u.test(c) ? 2 : 1;
  return width;
}

/** Bytes as "14.6 MiB". */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

/** Milliseconds as "350 ms", "12.3 s", "5 min 3 s" or "2 h 5 min". */
export function formatDuration(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
