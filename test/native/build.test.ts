/** The build script: silent and without CMake when nothing changed, one plain sentence when a tool is missing, one build at a time. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import { packageRoot } from '../../native/index.js';

const root = mkdtempSync(join(tmpdir(), 'inferd-build-'));
const bin = join(root, 'bin');
const native = join(root, 'native');
const log = join(root, 'log');
const built = join(native, 'build', 'inferd.node');

/** The variables that a build is made from, as they are here. */
function buildSettings(): NodeJS.ProcessEnv {
  const names = ['CXX', 'INFERD_CUDA', 'INFERD_CUDA_ARCHS', 'INFERD_CUBLAS_INCLUDE', 'INFERD_CUPTI_INCLUDE', 'CUDA_HOME'];
  return Object.fromEntries(names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])));
}

/** Runs build.mjs of `folder` with only the stand-in tools in PATH. */
function build(
  args: readonly string[] = [],
  folder = native,
  settings: NodeJS.ProcessEnv = folder === native ? { INFERD_CUDA: '0' } : buildSettings(),
): Promise<{ code: number | null; stderr: string }> {
  return new Promise((resolve) => {
    const env = { PATH: bin, ...settings };
    const child = spawn(process.execPath, [join(folder, 'build.mjs'), ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    child.on('close', (code) => resolve({ code, stderr }));
  });
}

function tool(name: string, script: string): void {
  const file = join(bin, name);
  writeFileSync(file, `#!/bin/sh\nPATH=/usr/bin:/bin\n${script}\n`);
  chmodSync(file, 0o755);
}

/** Stands in for CMake: "builds" by writing the name of a source's first line, and logs begin and end of every build. */
const workingCmake = `
case "$1" in
  --version) echo "cmake version 3.25.1" ;;
  -S) mkdir -p "$4" ;;
  --build) echo begin >> ${log}; sleep 0.2; head -n 1 ${native}/core/a.h > "$2/$4.out"; echo end >> ${log}
    [ "$4" = inferd ] && mv "$2/inferd.out" "$2/inferd.node" || mv "$2/$4.out" "$2/$4.so" ;;
esac`;

beforeEach(() => {
  rmSync(root, { recursive: true, force: true });
  for (const dir of [bin, join(native, 'core')]) mkdirSync(dir, { recursive: true });
  for (const name of ['build.mjs', 'toolkit.mjs']) cpSync(join(packageRoot(), 'native', name), join(native, name));
  writeFileSync(join(native, 'core', 'a.h'), 'one\n');
  symlinkSync(join(packageRoot(), 'node_modules'), join(root, 'node_modules'));
  tool('cmake', workingCmake);
  tool('make', 'exit 0');
  tool('c++', 'exit 0');
});
after(() => rmSync(root, { recursive: true, force: true }));

const builds = (): string[] => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []);

describe('the native build', () => {
  test('of this package is up to date, silent, and needs no CMake to know that', async () => {
    rmSync(join(bin, 'cmake'));
    assert.deepEqual(await build([], join(packageRoot(), 'native')), { code: 0, stderr: '' });
  });

  test('runs once for a change and not again without one', async () => {
    const first = await build();
    assert.equal(first.code, 0, first.stderr);
    assert.match(first.stderr, /Building the native engine[\s\S]*Built the native engine in/);
    assert.deepEqual(await build(), { code: 0, stderr: '' });
    assert.equal(readFileSync(built, 'utf8'), 'one\n');
    writeFileSync(join(native, 'core', 'a.h'), 'two\n');
    utimesSync(join(native, 'core', 'a.h'), 1, 1);
    assert.equal((await build()).code, 0);
    assert.equal(readFileSync(built, 'utf8'), 'two\n');
    assert.deepEqual(builds(), ['begin', 'end', 'begin', 'end']);
  });

  test('started several times at once compiles once', async () => {
    const all = await Promise.all([build(), build(), build()]);
    assert.deepEqual(
      all.map((b) => b.code),
      [0, 0, 0],
    );
    assert.deepEqual(builds(), ['begin', 'end']);
    assert.ok(!existsSync(join(native, 'build', '.lock')));
  });

  test('goes to another folder, without its intermediate files, where this one may not be written', async () => {
    const out = join(root, 'elsewhere');
    const { code, stderr } = await build(['--out', out, '--progress']);
    assert.deepEqual([code, stderr], [0, ''], 'whoever asks for the progress speaks himself');
    assert.equal(readFileSync(join(out, 'inferd.node'), 'utf8'), 'one\n');
    assert.ok(!existsSync(join(out, 'cmake')) && !existsSync(built));
    assert.deepEqual(await build(['--out', out]), { code: 0, stderr: '' });
    assert.deepEqual(builds(), ['begin', 'end']);
  });

  test('is put off with its sentence where the installation is to go on without it', async () => {
    rmSync(join(bin, 'cmake'));
    const { code, stderr } = await build(['--later']);
    assert.equal(code, 0);
    assert.match(stderr, /^The native engine needs cmake .*\n.*"inferd serve" builds the native engine when it starts\.\n$/);
  });

  test('takes over the lock of a process that is gone', async () => {
    mkdirSync(join(native, 'build'));
    writeFileSync(join(native, 'build', '.lock'), '999999999');
    assert.equal((await build()).code, 0);
    assert.deepEqual(builds(), ['begin', 'end']);
  });

  test('builds the CUDA backend once a GPU and a toolkit are there, and again once a library is', async () => {
    const include = join(root, 'include');
    const settings = { CUDA_HOME: join(root, 'cuda'), INFERD_CUPTI_INCLUDE: include, INFERD_CUBLAS_INCLUDE: include };
    const backend = join(native, 'build', 'inferd_cuda.so');
    const again = () => build([], native, settings);
    tool('nvidia-smi', 'exit 9');
    assert.equal((await again()).code, 0);
    assert.deepEqual([await again(), existsSync(backend)], [{ code: 0, stderr: '' }, false]);
    tool('nvidia-smi', 'echo 9.0');
    tool('nvcc', 'exit 0');
    assert.match((await again()).stderr, /Built the native engine/);
    assert.deepEqual([await again(), existsSync(backend)], [{ code: 0, stderr: '' }, true]);
    const headers = ['cublasLt.h', 'cupti.h'];
    const had = headers.every((header) => existsSync(join('/usr/include', header)));
    mkdirSync(include);
    for (const header of headers) writeFileSync(join(include, header), '');
    assert.equal(/Built the native engine/.test((await again()).stderr), !had);
    for (const name of ['nvcc', 'nvidia-smi']) rmSync(join(bin, name));
    assert.deepEqual(await again(), { code: 0, stderr: '' }, 'nothing is looked for when nothing is missing');
    assert.equal(builds().length, 2 * (1 + 2 + (had ? 0 : 2)));
  });

  test('builds the CUDA backend alone where it is asked to', async () => {
    const out = join(root, 'elsewhere');
    tool('nvcc', 'exit 0');
    const settings = { CUDA_HOME: join(root, 'cuda'), INFERD_CUDA: '1' };
    assert.equal((await build(['--cuda', '--out', out], native, settings)).code, 0);
    assert.deepEqual(
      ['inferd.node', 'inferd_cuda.so'].map((file) => existsSync(join(out, file))),
      [false, true],
    );
    assert.deepEqual(builds(), ['begin', 'end']);
    assert.equal((await build(['--cuda', '--out', out])).code, 64, 'with INFERD_CUDA=0');
    assert.equal((await build(['--cuda'], native, settings)).code, 64, 'beside the engine, which would lack its other half');
  });

  test('keeps a sanitizer build apart', async () => {
    assert.equal((await build(['--sanitize', 'address'])).code, 0);
    assert.ok(existsSync(join(native, 'build', 'address', 'inferd.node')) && !existsSync(built));
  });

  const broken: readonly (readonly [what: string, spoil: () => void, code: number, sentence: RegExp])[] = [
    [
      'no cmake',
      () => rmSync(join(bin, 'cmake')),
      69,
      /needs cmake 3\.18 or newer, which was not found; install it \(.*apt install cmake make g\+\+\)/,
    ],
    ['an old cmake', () => tool('cmake', 'echo "cmake version 3.10.2"'), 69, /needs cmake 3\.18 or newer, and 3\.10 was found/],
    ['no make', () => rmSync(join(bin, 'make')), 69, /needs make, which was not found/],
    [
      'no compiler',
      () => rmSync(join(bin, 'c++')),
      69,
      /needs a C\+\+20 compiler, and none of c\+\+, g\+\+, clang\+\+ was found; install one/,
    ],
    ['an old compiler', () => tool('c++', '[ "$1" = --version ]'), 69, /needs a C\+\+20 compiler .*, and c\+\+ cannot/],
    ['no Node headers', () => rmSync(join(root, 'node_modules')), 69, /node-addon-api is missing; run "npm install"/],
  ];
  for (const [what, spoil, code, sentence] of broken) {
    test(`with ${what} ends with one sentence`, async () => {
      spoil();
      const run = await build();
      assert.equal(run.code, code);
      assert.match(run.stderr, sentence);
      assert.equal(run.stderr.trim().split('\n').length, 1, run.stderr);
    });
  }

  test('that fails shows what the compiler said', async () => {
    tool(
      'cmake',
      '[ "$1" = --build ] && { echo "a.h:1: error: no" >&2; exit 2; }; [ "$1" = --version ] && echo "cmake version 3.25.1"; exit 0',
    );
    const run = await build();
    assert.equal(run.code, 70);
    assert.match(run.stderr, /a\.h:1: error: no[\s\S]*did not compile/);
    assert.ok(!existsSync(built));
  });

  test('refuses arguments that it does not know', async () => {
    assert.equal((await build(['--fast'])).code, 64);
    assert.equal((await build(['--sanitize', 'memory'])).code, 64);
  });
});
