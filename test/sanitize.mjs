// Runs the native tests on an instrumented addon: `npm run test:asan`, `test:ubsan`, `test:tsan` run the whole of test/native, or with words
// as in run.mjs: `npm run test:tsan -- threads engine/`. `--list` only says what would run. The addon is built once, into
// native/build/NAME; a later run builds only what has changed. Node itself is not instrumented, so the sanitizer's runtime is preloaded
// into it; memory that Node never frees at its exit is no leak of ours, and reports inside Node itself are left out by
// test/sanitizers/*.supp. Each file runs in a process of its own; reports are kept in native/build/NAME/reports, also those of processes
// that a test starts. Exits with 0 when every test passed and nothing was found. Linux only.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chooseFiles, closingLines, runFile } from './native-tests.mjs';
import { findingsIn } from './sanitizers/findings.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const suppressions = (name) => `suppressions=${join(here, 'sanitizers', `${name}.supp`)}`;
const sanitizers = {
  address: { library: 'libasan.so', variable: 'ASAN_OPTIONS', options: ['detect_leaks=0', 'halt_on_error=1', 'strict_string_checks=1'] },
  undefined: { library: 'libubsan.so', variable: 'UBSAN_OPTIONS', options: ['halt_on_error=1', 'print_stacktrace=1'] },
  thread: { library: 'libtsan.so', variable: 'TSAN_OPTIONS', options: ['halt_on_error=1', 'exitcode=66', suppressions('thread')] },
};
/** Files that no sanitizer can judge, and why. */
const leftOut = {
  'build.test.ts': 'it tries the build script, and loads no addon',
  'engine/out-of-memory.test.ts': 'it takes from the process the memory that the sanitizer itself needs',
};

const [name = '', ...rest] = process.argv.slice(2);
const words = rest.filter((word) => word !== '--list');
const sanitizer = sanitizers[name];
if (sanitizer === undefined) {
  process.stderr.write(`usage: node test/sanitize.mjs ${Object.keys(sanitizers).join('|')} [--list] [WORD ...]\n`);
  process.exit(64);
}

/** The runtime of the compiler that builds the addon; only GCC has it in a library of its own under this name. */
function runtime(library) {
  const compilers = process.env['CXX'] ? [process.env['CXX']] : ['c++', 'g++'];
  for (const compiler of compilers) {
    const path = spawnSync(compiler, [`-print-file-name=${library}`], { encoding: 'utf8' }).stdout?.trim() ?? '';
    if (path.startsWith('/') && existsSync(path)) return path;
  }
  process.stderr.write(`${library} was not found; install GCC with its sanitizers (on Debian or Ubuntu: sudo apt install g++).\n`);
  return process.exit(69);
}

const { all, files } = chooseFiles(words, leftOut);
const say = (line) => process.stdout.write(`${line}\n`);
if (rest.includes('--list')) {
  for (const file of files) say(file);
  process.exit(0);
}

const preload = runtime(sanitizer.library);
const build = join(root, 'native', 'build', name);
const { status: built } = spawnSync(process.execPath, [join(root, 'native', 'build.mjs'), '--sanitize', name], { stdio: 'inherit' });
if (built !== 0) process.exit(built ?? 1);
const reports = join(build, 'reports');
rmSync(reports, { recursive: true, force: true });
mkdirSync(reports);

// ThreadSanitizer cannot map its shadow memory where the kernel randomises addresses widely.
const fixed = name === 'thread' && spawnSync('setarch', ['--addr-no-randomize', 'true']).status === 0;
const environment = {
  ...process.env,
  INFERD_NATIVE_BUILD: name,
  LD_PRELOAD: preload,
  [sanitizer.variable]: [...sanitizer.options, `log_path=${join(reports, 'report')}`, process.env[sanitizer.variable]]
    .filter(Boolean)
    .join(':'),
};

/** Runs one file and says how it went. */
function judge(file) {
  const command = [...(fixed ? ['setarch', '--addr-no-randomize'] : []), process.execPath, '--test'];
  const before = new Set(readdirSync(reports));
  const { tests, passed, output } = runFile(file, command, environment);
  const found = findingsIn(reports).filter((finding) => !before.has(finding.file.slice(reports.length + 1)));
  say(`${passed && found.length === 0 ? 'ok  ' : 'FAIL'} ${file}: ${tests} tests${found.length > 0 ? `, ${found.length} findings` : ''}`);
  if (!passed) process.stdout.write(output);
  for (const report of new Set(found.map((finding) => finding.file))) process.stdout.write(readFileSync(report));
  return { file, tests, passed, found };
}

const runs = files.map(judge);
const sum = (of) => runs.reduce((total, run) => total + of(run), 0);
const failed = runs.filter((run) => !run.passed).map((run) => run.file);
const found = runs.flatMap((run) => run.found.map((finding) => ({ ...finding, of: run.file })));
say('');
say(`${name}: ran ${files.length} of ${all.length} files of test/native with ${sum((run) => run.tests)} tests; ${found.length} findings.`);
for (const line of closingLines(leftOut, failed, words)) say(line);
for (const { summary, file, of } of found) say(`  found     ${of}: ${summary} (${file})`);
process.exit(failed.length > 0 || found.length > 0 ? 1 : 0);
