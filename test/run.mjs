// Runs the compiled tests: `npm test` runs all, `npm test -- scheduler rpc` those whose path holds one of the words.
// Those of test/browser run where there is a Chromium; `npm run test:browser` asks for them, and fails where there is none.
// Its last lines name those that failed. Lists the sources, since Node 20 takes no globs and compiled files of deleted tests may still lie
// in dist/.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const words = process.argv.slice(2);
const { findBrowser } = await import(new URL('../dist/test/browser/find-browser.js', import.meta.url).href);
const left =
  words.some((word) => word.startsWith('browser')) || findBrowser() !== undefined ? /^(gpu|package)\b/ : /^(gpu|browser|package)\b/;
const files = readdirSync(here, { recursive: true })
  .map(String)
  .filter((file) => file.endsWith('.test.ts') && !left.test(file))
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .sort()
  .map((file) => join(here, '..', 'dist', 'test', file.replace(/\.ts$/, '.js')));
if (files.length === 0) {
  process.stderr.write(`No test file has "${words.join('" or "')}" in its path.\n`);
  process.exit(64);
}
if (words.length === 0) {
  // Tests that need a CUDA device are never skipped silently. A file's calls of test() and it() count, loops as one.
  const gpu = readdirSync(join(here, 'gpu'), { recursive: true })
    .map(String)
    .filter((file) => /_test\.cu$|\.test\.ts$/.test(file));
  const counted = gpu.reduce(
    (sum, file) => sum + (readFileSync(join(here, 'gpu', file), 'utf8').match(/^\s*(test|it)\(/gm)?.length ?? 1),
    0,
  );
  process.stdout.write(
    `Not run here: ${counted} GPU tests in ${gpu.length} files of test/gpu ("npm run test:gpu" on a machine with a GPU)${
      left.test('browser/') ? ', and those of pages in test/browser ("npm run test:browser" where there is a Chromium)' : ''
    }, and those of the installed package in test/package ("npm run test:package", with a registry).\n`,
  );
}
/**
 * Files of whole daemons and of pages run one after the other, as they ask how long a loop was held or how a load is shared; the others
 * two at a time, also where there are two cores: much of their time is waiting. Node knows the switch from 20.10 on.
 */
const wholes = /^.*[\\/]dist[\\/]test[\\/](e2e|browser)[\\/]/;
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
const switches = major > 20 || minor >= 10;

/** What a part of the tests ended with, and a line for each test that failed. */
function run(some, atOnce) {
  if (some.length === 0) return { status: 0, failed: '' };
  const folder = mkdtempSync(join(tmpdir(), 'inferd-failed-'));
  const failed = join(folder, 'failed');
  const reporters = [
    ['spec', 'stdout'],
    [new URL('failed-reporter.mjs', import.meta.url).href, failed],
  ].flatMap(([reporter, to]) => [`--test-reporter=${reporter}`, `--test-reporter-destination=${to}`]);
  const concurrency = switches ? [`--test-concurrency=${atOnce}`] : [];
  // The longest file takes a minute or two; one that hangs is not to take the others along.
  const args = ['--test', '--test-timeout=600000', ...reporters, ...concurrency, ...some];
  const { status, signal } = spawnSync(process.execPath, args, { stdio: 'inherit' });
  const lines = existsSync(failed) ? readFileSync(failed, 'utf8') : '';
  rmSync(folder, { recursive: true, force: true });
  const silent = status !== 0 && lines === '';
  return { status: status ?? 1, failed: silent ? `the runner of ${some.length} files: ${signal ?? `exit ${status}`}\n` : lines };
}
const parts = [
  run(
    files.filter((file) => !wholes.test(file)),
    Math.max(2, availableParallelism() - 1),
  ),
  run(
    files.filter((file) => wholes.test(file)),
    1,
  ),
];
const failed = parts.map((part) => part.failed).join('');
if (failed !== '') process.stdout.write(`\nFailed:\n${failed}`);
process.exit(parts.find((part) => part.status !== 0)?.status ?? 0);
