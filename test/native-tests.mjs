// What runs of test/native on another build of the addon share (sanitize.mjs, arm.mjs): which files they take, and how a file ran.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
/** A file is several times slower there; one that hangs is not to keep the others from running. */
const FILE_LIMIT_MS = 30 * 60_000;

/** All files of test/native, and those whose path holds one of the words and that are not left out; ends the process when none is. */
export function chooseFiles(words, leftOut) {
  const all = readdirSync(join(here, 'native'), { recursive: true })
    .map(String)
    .filter((file) => file.endsWith('.test.ts'))
    .sort();
  const files = all.filter((file) => !(file in leftOut) && (words.length === 0 || words.some((word) => file.includes(word))));
  if (files.length === 0) {
    process.stderr.write(`No test file of test/native has "${words.join('" or "')}" in its path.\n`);
    process.exit(64);
  }
  return { all, files };
}

/** Runs the compiled form of a file by `command`, which ends in a Node, and counts its tests. */
export function runFile(file, command, env) {
  const [program, ...args] = [...command, '--test-reporter=tap', join(here, '..', 'dist', 'test', 'native', file.replace(/\.ts$/, '.js'))];
  const limits = { timeout: FILE_LIMIT_MS, killSignal: 'SIGKILL', maxBuffer: 1 << 30 };
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd: join(here, '..'), encoding: 'utf8', env, ...limits });
  const count = (what) => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(stdout ?? '')?.[1] ?? 0);
  const tests = count('tests');
  return {
    tests,
    failures: count('fail'),
    passed: status === 0 && tests > 0,
    output: `${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`,
  };
}

/** Files that are not run, when all were asked for, and those that failed. */
export function closingLines(leftOut, failed, words) {
  const left = words.length === 0 ? Object.entries(leftOut).map(([file, why]) => `  left out  ${file}: ${why}`) : [];
  return [...left, ...failed.map((file) => `  failed    ${file}`)];
}
