// Runs the native tests on an instrumented addon: `npm run test:asan`, `test:ubsan`, `test:tsan`, or with words as in run.mjs:
// `npm run test:tsan -- engine threads`. Node itself is not instrumented, so the sanitizer's runtime is preloaded into it; memory that
// Node never frees at its exit is no leak of ours, and reports inside Node itself are left out by test/sanitizers/*.supp. Linux only.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const suppressions = (name) => `suppressions=${join(here, 'sanitizers', `${name}.supp`)}`;
const sanitizers = {
  address: { library: 'libasan.so', variable: 'ASAN_OPTIONS', options: ['detect_leaks=0', 'halt_on_error=1', 'strict_string_checks=1'] },
  undefined: { library: 'libubsan.so', variable: 'UBSAN_OPTIONS', options: ['halt_on_error=1', 'print_stacktrace=1'] },
  thread: { library: 'libtsan.so', variable: 'TSAN_OPTIONS', options: ['halt_on_error=1', 'exitcode=66', suppressions('thread')] },
};

const [name = '', ...words] = process.argv.slice(2);
const sanitizer = sanitizers[name];
if (sanitizer === undefined) {
  process.stderr.write(`usage: node test/sanitize.mjs ${Object.keys(sanitizers).join('|')} [WORD ...]\n`);
  process.exit(64);
}

function run(command, args, env = {}) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } });
  if (error) process.stderr.write(`${command}: ${error.message}\n`);
  return status ?? 1;
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

const files = readdirSync(join(here, 'native'))
  // The test of the build script loads no addon.
  .filter((file) => file.endsWith('.test.ts') && file !== 'build.test.ts')
  .filter((file) => words.length === 0 || words.some((word) => file.includes(word)))
  .sort()
  .map((file) => join(root, 'dist', 'test', 'native', file.replace(/\.ts$/, '.js')));
// Without a file Node would look for tests itself.
if (files.length === 0) {
  process.stderr.write(`No test file of test/native has "${words.join('" or "')}" in its name.\n`);
  process.exit(64);
}
const preload = runtime(sanitizer.library);
const built = run(process.execPath, [join(root, 'native', 'build.mjs'), '--sanitize', name]);
if (built !== 0) process.exit(built);
const node = [process.execPath, '--test', '--test-concurrency=1', ...files];
// ThreadSanitizer cannot map its shadow memory where the kernel randomises addresses widely.
const fixed = name === 'thread' && run('setarch', ['--addr-no-randomize', 'true']) === 0;
const command = fixed ? ['setarch', '--addr-no-randomize', ...node] : node;
process.exit(
  run(command[0], command.slice(1), {
    INFERD_NATIVE_BUILD: name,
    LD_PRELOAD: preload,
    [sanitizer.variable]: [...sanitizer.options, process.env[sanitizer.variable]].filter(Boolean).join(':'),
  }),
);
