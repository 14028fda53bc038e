// What sanitizers wrote: each process that finds something leaves a file PREFIX.PID in a folder, also one that a test started and whose
// own output the test kept for itself.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The reports of a folder: the sentence that sums each up, and its file.
 * A file without such a sentence (the process died while it wrote) is a finding too.
 */
export function findingsIn(folder) {
  return readdirSync(folder)
    .sort()
    .map((name) => join(folder, name))
    .flatMap((file) => summaries(readFileSync(file, 'utf8')).map((summary) => ({ summary, file })));
}

/** Several reports of one process each have a line; the same one is told once. */
function summaries(text) {
  const said = [...text.matchAll(/^(?:SUMMARY: (.*)|(.*: runtime error: .*))$/gm)].map(([, summary, error]) => summary ?? error);
  if (said.length > 0) return [...new Set(said)];
  const first = text.split('\n').find((line) => line.trim() !== '');
  return first === undefined ? [] : [first.trim()];
}
