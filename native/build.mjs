/**
 * Builds the native addon with CMake: `npm run build:native`, also run by `npm install` in a clone, and by `inferd` when it first starts an
 * engine.
 *
 *   node native/build.mjs [--sanitize address|thread|undefined] [--out FOLDER [--cuda]] [--progress] [--later] [--verbose]
 *
 * --out takes another folder than native/build, for a package that lies where this user may not write; its intermediate files are removed.
 * --cuda, with it and INFERD_CUDA=1: the CUDA backend alone, to see that it compiles where the rest is built already.
 * --progress writes percentages to stdout, a line each, for a program. --later: a failure is told, but is none: the engine is built
 * when it is first needed.
 *
 * The result is native/build/inferd.node (or native/build/<sanitizer>/inferd.node) and, where nvcc and a GPU are found, the CUDA backend
 * native/build/inferd_cuda.so. INFERD_CUDA=0 leaves it out, INFERD_CUDA=1 makes its absence an error; otherwise a CUDA build that fails
 * is told and the CPU engine is kept. INFERD_CUDA_ARCHS names the architectures ("80,89,90a", or "all"); by default those of the GPUs
 * in this machine, or all when there is none. INFERD_CUBLAS_INCLUDE names the folder of cublasLt.h when it lies neither in the
 * toolkit nor in the Python packages of nvidia-cublas, INFERD_CUPTI_INCLUDE likewise that of cupti.h. Nothing is downloaded: the Node
 * headers come from the packages node-api-headers and node-addon-api. When no source changed since the last good build, and nothing
 * that the CUDA backend lacked then is here now, it returns at once, without starting CMake. Several invocations at a time are safe: a
 * lock file serialises them, and the finished library is moved into place whole, so that a running process never loads half of one.
 */
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join, relative, resolve as resolvePath } from 'node:path';
import { fileURLToPath } from 'node:url';
import { codeFor, cublasInclude, cuptiInclude, findTool, presentArchitectures, works } from './toolkit.mjs';

const EXIT_USAGE = 64;
const EXIT_UNAVAILABLE = 69;
const EXIT_FAILED = 70;
const ALL_ARCHS = '80,89,90a';
/** Last line of the fingerprint of a build that lacked nothing. */
const COMPLETE = 'cuda complete';
const LOCK_TIMEOUT_MS = 20 * 60_000;
const INSTALL = 'on Debian or Ubuntu: sudo apt install cmake make g++';

const nativeDir = dirname(fileURLToPath(import.meta.url));
const USAGE =
  'usage: node native/build.mjs [--sanitize address|thread|undefined] [--out FOLDER [--cuda]] [--progress] [--later] [--verbose]';
/** Set by --later. */
let later = false;

function fail(message, code) {
  process.stderr.write(`${message}\n`);
  if (later) process.stderr.write('The rest of inferd is ready; "inferd serve" builds the native engine when it starts.\n');
  process.exit(later ? 0 : code);
}

function parseArguments(argv) {
  const options = { sanitize: '', out: '', cuda: false, progress: false, verbose: false };
  for (let i = 0; i < argv.length; i++) {
    if (argv[i] === '--verbose') options.verbose = true;
    else if (argv[i] === '--progress') options.progress = true;
    else if (argv[i] === '--later') later = true;
    else if (argv[i] === '--cuda') options.cuda = true;
    else if (argv[i] === '--out' && argv[i + 1]) options.out = resolvePath(argv[++i]);
    else if (argv[i] === '--sanitize' && ['address', 'thread', 'undefined'].includes(argv[i + 1])) options.sanitize = argv[++i];
    else fail(USAGE, EXIT_USAGE);
  }
  if (options.cuda && (options.out === '' || process.env['INFERD_CUDA'] !== '1')) fail(USAGE, EXIT_USAGE);
  return options;
}

/** Names, sizes and times of everything the library is made from; equal text = nothing to do. */
function fingerprint(buildArguments) {
  const lines = [process.arch, process.platform, ...buildArguments];
  const walk = (dir) => {
    for (const entry of readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(dir, entry.name);
      if (entry.isDirectory()) {
        if (entry.name !== 'build') walk(path);
      } else if (/\.(cpp|h|cu|cuh|txt|cmake)$/.test(entry.name)) {
        const info = statSync(path);
        lines.push(`${relative(nativeDir, path)} ${info.size} ${info.mtimeMs}`);
      }
    }
  };
  walk(nativeDir);
  for (const name of ['node-addon-api', 'node-api-headers']) lines.push(`${name} ${packageVersion(name)}`);
  return lines.join('\n');
}

const packageVersion = (name) => JSON.parse(readFileSync(join(packageFolder(name), 'package.json'), 'utf8')).version;

/** Beside ours or, where inferd is a dependency, further up. */
function packageFolder(name) {
  try {
    return dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
  } catch {
    return fail(`The package ${name} is missing; run "npm install" in ${dirname(nativeDir)}.`, EXIT_UNAVAILABLE);
  }
}

/** Ends the process with one sentence when a tool is missing or too old. */
function checkTools() {
  const cmake = works('cmake', '--version');
  if (cmake === null) fail(`The native engine needs cmake 3.18 or newer, which was not found; install it (${INSTALL}).`, EXIT_UNAVAILABLE);
  const [major = 0, minor = 0] = (/version (\d+)\.(\d+)/.exec(cmake) ?? []).slice(1).map(Number);
  if (major < 3 || (major === 3 && minor < 18)) {
    fail(
      `The native engine needs cmake 3.18 or newer, and ${major}.${minor} was found; install a newer one (${INSTALL}).`,
      EXIT_UNAVAILABLE,
    );
  }
  if (works('make', '--version') === null)
    fail(`The native engine needs make, which was not found; install it (${INSTALL}).`, EXIT_UNAVAILABLE);
  const compilers = process.env['CXX'] ? [process.env['CXX']] : ['c++', 'g++', 'clang++'];
  const found = compilers.filter((name) => works(name, '--version') !== null);
  if (found.length === 0) {
    fail(
      `The native engine needs a C++20 compiler, and none of ${compilers.join(', ')} was found; install one (${INSTALL}).`,
      EXIT_UNAVAILABLE,
    );
  }
  const compiler = found.find((name) => spawnSync(name, ['-std=c++20', '-fsyntax-only', '-x', 'c++', '-'], { input: PROBE }).status === 0);
  if (compiler === undefined) {
    fail(
      `The native engine needs a C++20 compiler (g++ 11, clang 14 or newer), and ${found.join(', ')} cannot; install one (${INSTALL}).`,
      EXIT_UNAVAILABLE,
    );
  }
  return compiler;
}

const PROBE = '#include <bit>\n#include <span>\nfloat f(unsigned u) { return std::bit_cast<float>(u); }\n';

/** Where what the CUDA backend is made of lies; '' for what is missing, and for all without a GPU, with INFERD_CUDA=0 or a sanitizer. */
function cudaTools(options) {
  const none = { nvcc: '', cublas: '', cupti: '' };
  if (process.env['INFERD_CUDA'] === '0' || options.sanitize !== '') return none;
  if (process.env['INFERD_CUDA'] !== '1' && !hasNvidiaGpu()) return none;
  const nvcc = findTool('nvcc') ?? '';
  return nvcc === '' ? none : { nvcc, cublas: cublasInclude(), cupti: cuptiInclude() };
}

/** How to build the CUDA backend, or null. */
function cudaSettings(options) {
  const tools = cudaTools(options);
  if (tools.nvcc !== '') return { ...tools, archs: cudaArchitectures() };
  if (process.env['INFERD_CUDA'] === '1')
    fail('INFERD_CUDA=1 asks for the CUDA backend, but nvcc was not found; install the CUDA toolkit.', EXIT_UNAVAILABLE);
  return null;
}

/** The last line of the fingerprint of a build: what its CUDA backend was made from, for as long as something that it lacks may come. */
function cudaLine(tools, made) {
  return made && Object.values(tools).every((path) => path !== '') ? COMPLETE : JSON.stringify(tools);
}

/** True when something is here that a build with this line did without. What is gone, or lies elsewhere now, changes nothing. */
function gained(line, options) {
  if (line === COMPLETE) return false;
  const before = JSON.parse(line);
  return Object.entries(cudaTools(options)).some(([name, path]) => path !== '' && before[name] === '');
}

/** A toolkit alone (a build server, a container) does not pay minutes for a library that nothing here can run. */
function hasNvidiaGpu() {
  return existsSync('/proc/driver/nvidia/version') || works('nvidia-smi', '--list-gpus') !== null;
}

function cudaArchitectures() {
  const asked = process.env['INFERD_CUDA_ARCHS'] ?? '';
  if (asked === 'all') return ALL_ARCHS;
  if (asked !== '') return asked;
  const archs = presentArchitectures().map(codeFor);
  return archs.length > 0 ? archs.join(',') : ALL_ARCHS;
}

/** Takes the lock of a build folder; a lock whose process is gone is taken over. Returns the function that gives it back. */
async function lock(buildDir) {
  const file = join(buildDir, '.lock');
  const deadline = Date.now() + LOCK_TIMEOUT_MS;
  for (;;) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      return () => rmSync(file, { force: true });
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (abandoned(file)) {
      // Renaming first makes exactly one of several waiting processes the one that removes it.
      const mine = `${file}.${process.pid}`;
      try {
        renameSync(file, mine);
        if (abandoned(mine)) rmSync(mine, { force: true });
        else renameSync(mine, file);
      } catch {
        // Another process was quicker.
      }
    } else if (Date.now() > deadline) {
      fail(
        `Another build holds ${file} for more than ${LOCK_TIMEOUT_MS / 60_000} minutes; remove the file if no build runs.`,
        EXIT_UNAVAILABLE,
      );
    } else {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function abandoned(file) {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    // An empty file is a lock being written right now, unless it stays empty.
    if (!Number.isInteger(pid) || pid <= 0) return Date.now() - statSync(file).mtimeMs > 5000;
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

/** Runs a command; its output is shown only when it fails, except for make's progress on a terminal. */
function run(command, args, { verbose, progress }) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    const keep = (chunk) => {
      const text = chunk.toString();
      output += text;
      const last = [...text.matchAll(/\[\s*(\d+)%\]/g)].at(-1);
      if (progress && last) process.stdout.write(`${last[1]}\n`);
      if (verbose) process.stderr.write(text);
      else if (process.stderr.isTTY && !progress && last) process.stderr.write(`\rBuilding the native engine: ${last[1]} %`);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.on('error', (error) => resolve({ status: 1, output: String(error) }));
    child.on('close', (status) => resolve({ status: status ?? 1, output: verbose ? '' : output }));
  });
}

/** Moves a built library into place whole. */
function publish(from, to) {
  const fresh = `${to}.${process.pid}`;
  copyFileSync(from, fresh);
  renameSync(fresh, to);
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const buildDir = options.out || join(nativeDir, 'build', options.sanitize);
  const target = join(buildDir, 'inferd.node');
  const stamp = join(buildDir, '.fingerprint');
  const environment = ['CXX', 'INFERD_CUDA', 'INFERD_CUDA_ARCHS', 'INFERD_CUBLAS_INCLUDE', 'INFERD_CUPTI_INCLUDE', 'CUDA_HOME'];
  const buildArguments = [`sanitize=${options.sanitize}`, ...environment.map((name) => `${name}=${process.env[name] ?? ''}`)];
  const current = () => {
    if (!existsSync(target) || !existsSync(stamp)) return false;
    const [, sources, cuda] = /^(.*)\n(.*)$/s.exec(readFileSync(stamp, 'utf8')) ?? [];
    return sources === fingerprint(buildArguments) && !gained(cuda, options);
  };
  if (current()) return;

  mkdirSync(buildDir, { recursive: true });
  const unlock = await lock(buildDir);
  process.on('exit', unlock);
  process.on('SIGINT', () => process.exit(130));
  process.on('SIGTERM', () => process.exit(143));
  if (current()) return;

  const started = Date.now();
  const compiler = checkTools();
  const cuda = cudaSettings(options);
  const wanted = fingerprint(buildArguments);
  const cmakeDir = join(buildDir, 'cmake');
  const time = cuda === null ? 'about a minute' : 'some minutes';
  if (!options.progress) {
    process.stderr.write(`Building the native engine (the first time takes ${time})`);
    process.stderr.write(process.stderr.isTTY ? '\r' : ' ...\n');
  }
  const configure = [
    ...['-S', nativeDir, '-B', cmakeDir, '-G', 'Unix Makefiles', '-DCMAKE_BUILD_TYPE=Release', `-DCMAKE_CXX_COMPILER=${compiler}`],
    `-DNODE_API_HEADERS=${join(packageFolder('node-api-headers'), 'include')}`,
    ...[`-DNODE_ADDON_API=${packageFolder('node-addon-api')}`, `-DINFERD_SANITIZE=${options.sanitize}`],
  ];
  const withCuda =
    cuda === null
      ? ['-DINFERD_CUDA_ARCHS=']
      : [
          `-DCMAKE_CUDA_COMPILER=${cuda.nvcc}`,
          `-DINFERD_CUDA_ARCHS=${cuda.archs}`,
          `-DINFERD_CUBLAS_INCLUDE=${cuda.cublas}`,
          `-DINFERD_CUPTI_INCLUDE=${cuda.cupti}`,
        ];
  const build = (name) => run('cmake', ['--build', cmakeDir, '--target', name, '--parallel', String(availableParallelism())], options);
  let cudaProblem = '';
  let done = await run('cmake', [...configure, ...withCuda], options);
  if (done.status !== 0 && cuda !== null) {
    cudaProblem = done.output;
    rmSync(join(cmakeDir, 'CMakeCache.txt'), { force: true });
    done = await run('cmake', [...configure, '-DINFERD_CUDA_ARCHS='], options);
  }
  if (done.status === 0 && !options.cuda) done = await build('inferd');
  if (done.status !== 0) {
    process.stderr.write(`\n${done.output}`);
    fail('The native engine did not compile; the compiler output is above.', EXIT_FAILED);
  }
  if (!options.cuda) publish(join(cmakeDir, 'inferd.node'), target);
  if (cuda !== null && cudaProblem === '') {
    const backend = await build('inferd_cuda');
    if (backend.status !== 0) cudaProblem = backend.output || 'see above';
    else publish(join(cmakeDir, 'inferd_cuda.so'), join(buildDir, 'inferd_cuda.so'));
  }
  if (cuda === null || cudaProblem !== '') rmSync(join(buildDir, 'inferd_cuda.so'), { force: true });
  if (cudaProblem !== '') {
    process.stderr.write(`\n${cudaProblem}\n`);
    if (process.env['INFERD_CUDA'] === '1') fail('The CUDA backend did not compile; the compiler output is above.', EXIT_FAILED);
    process.stderr.write('The CUDA backend did not compile (output above); the CPU engine is ready. INFERD_CUDA=0 leaves it out.\n');
  }
  writeFileSync(stamp, `${wanted}\n${cudaLine(cudaTools(options), cudaProblem === '')}`);
  if (options.out !== '') rmSync(cmakeDir, { recursive: true, force: true });
  if (options.progress) return;
  const line = `Built the native engine in ${((Date.now() - started) / 1000).toFixed(1)} s`;
  process.stderr.write(`${process.stderr.isTTY ? '\r' : ''}${line.padEnd(72)}\n`);
}

await main();
