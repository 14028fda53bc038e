/** The tables that the GPU tests print, and what compute-sanitizer's output means. Pure. */

/** Columns as wide as their widest cell; the last one is not padded. */
export function columns(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows.map((row) => row.map((cell, i) => (i + 1 === row.length ? cell : cell.padEnd(widths[i]))).join('  ')).join('\n');
}

/** Errors that a run under compute-sanitizer reported; null when it gave no summary, as when it was cut off or could not start. */
export function sanitizerErrors(output) {
  const race = /RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)/.exec(output);
  if (race !== null) return Number(race[1]) + Number(race[2]);
  const plain = /ERROR SUMMARY: (\d+) errors?/.exec(output);
  return plain === null ? null : Number(plain[1]);
}

/** The last lines of an output, for a failure. */
export function tail(output, lines = 15) {
  return output.trimEnd().split('\n').slice(-lines).join('\n');
}

/** Passed and failed tests of node --test, from its closing lines; null when there are none. */
export function testCounts(output) {
  const count = (word) => [...output.matchAll(new RegExp(`^(?:#|ℹ) ${word} (\\d+)`, 'gm'))].map((m) => Number(m[1])).at(-1);
  const passed = count('pass');
  return passed === undefined ? null : { passed, failed: (count('fail') ?? 0) + (count('cancelled') ?? 0), skipped: count('skipped') ?? 0 };
}

/** The closing table: one line a part. `parts`: {name, state, seconds, note} with state passed, failed, in part (this machine lacks something) or not run. */
export function summary(parts) {
  const rows = parts.map(({ name, state, seconds, note }) => [
    name,
    state === 'failed' ? 'FAILED' : state,
    state === 'not run' ? '' : seconds.toFixed(1),
    note,
  ]);
  return columns([['part', 'result', 'seconds', ''], ...rows]);
}
