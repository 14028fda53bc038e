/**
 * The runner of the GPU tests, without a GPU: its table names every test program and files that exist, and with stand-ins for the
 * compiler, the sanitizer and the programs it compiles shared sources once, passes the right words, and says what failed or did not run.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../native/index.js';
import { tempFolder } from './helpers/temp-folder.js';

interface Program {
  readonly name: string;
  readonly sources: readonly string[];
  readonly generic: string | null;
}

const folder = join(packageRoot(), 'test', 'gpu');
const load = async <T>(file: string): Promise<T> => (await import(pathToFileURL(join(folder, file)).href)) as T;
const { programs } = await load<{ programs: readonly Program[] }>('programs.mjs');
const { sanitizerErrors, testCounts } = await load<{
  sanitizerErrors(output: string): number | null;
  testCounts(output: string): { passed: number; failed: number; skipped: number } | null;
}>('report.mjs');

describe('the table of GPU test programs', () => {
  test('has one line for every *_test.cu', () => {
    const files = readdirSync(join(folder, 'programs')).filter((file) => file.endsWith('_test.cu'));
    assert.deepEqual(programs.map(({ name }) => `${name}.cu`).sort(), files.sort());
  });

  test('names sources that exist', () => {
    for (const { name, sources } of programs)
      for (const source of sources) assert.ok(existsSync(join(packageRoot(), 'native', source)), `${name} names native/${source}`);
  });
});

/** Stand-ins in a folder of their own. A program that is called `failing` fails, and its source does not pass a check. */
function standIns(options: { failing?: string; errors?: number; smi?: boolean } = {}): { env: NodeJS.ProcessEnv; log(): string[] } {
  const root = tempFolder();
  const bin = join(root, 'bin');
  const log = join(root, 'log');
  mkdirSync(bin);
  writeFileSync(log, '');
  const tool = (name: string, script: string): void => {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  const program = `#!/bin/sh\\necho "$(basename "$0") $*" >> ${log}\\necho "checks: done"\\n[ "$(basename "$0")" != "${options.failing ?? '-'}" ]`;
  tool(
    'nvcc',
    `case "$*" in --version) echo "release 13.0"; exit 0;; esac
     while [ $# -gt 0 ]; do case "$1" in -o) out=$2; shift;; -c) source=$2; shift;; *compute_80*) mode=generic;;
     -ptx) echo "check $(basename "$2")" >> ${log}; [ "$(basename "$2" .cu)" != "${options.failing ?? '-'}" ]; exit;; esac; shift; done
     if [ -n "$source" ]; then echo "compile $mode $(basename "$source")" >> ${log}; touch "$out"
     else printf '${program}' > "$out"; chmod +x "$out"; fi`,
  );
  tool(
    'compute-sanitizer',
    `case "$*" in --version) echo 2025; exit 0;; esac
     tool=$2; while [ "$1" != 97 ]; do shift; done; shift
     echo "sanitize $tool" >> ${log}; "$@"; echo "========= ERROR SUMMARY: ${options.errors ?? 0} errors"; exit ${options.errors ? 97 : 0}`,
  );
  tool('nvidia-smi', options.smi === false ? 'exit 9' : 'echo 9.0');
  return {
    env: {
      ...process.env,
      CMAKE_CUDA_COMPILER_LAUNCHER: '',
      PATH: `${bin}:${process.env['PATH']}`,
      INFERD_GPU_BUILD: join(root, 'out'),
      INFERD_CUDA_ARCHS: '',
    },
    log: () => readFileSync(log, 'utf8').trim().split('\n'),
  };
}

/** A folder with the header that some programs need. */
const headers = tempFolder();
writeFileSync(join(headers, 'cublasLt.h'), '');

function script(file: string, env: NodeJS.ProcessEnv, ...args: string[]): { status: number | null; out: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(folder, file), ...args], { env, encoding: 'utf8' });
  return { status, out: stdout + stderr };
}

const runner = (env: NodeJS.ProcessEnv, ...args: string[]) => script('run.mjs', env, ...args);

describe('the runner of the GPU tests', () => {
  test('compiles for the card and for old devices, runs the checks, and prints what it did not run', () => {
    const { env, log } = standIns();
    const { status, out } = runner(env, 'programs:tables_test', 'generic:tables_test', 'sanitize:tables_test');
    assert.equal(status, 0, out);
    for (const mode of ['', 'generic'])
      assert.equal(log().filter((line) => line === `compile ${mode} slots.cu`).length, 1, 'each source once a mode');
    assert.equal(log().filter((line) => line === 'tables_test check').length, 2);
    assert.equal(log().filter((line) => line === 'tables_test quick').length, 4);
    for (const tool of ['memcheck', 'racecheck', 'initcheck', 'synccheck']) assert.ok(log().includes(`sanitize ${tool}`), tool);
    assert.match(out, /programs +passed +\d+\.\d +1 of 1 programs passed/);
    assert.match(out, /sanitize +passed +\d+\.\d +4 of 4 clean/);
    assert.match(out, /bench +not run +not asked for/);
  });

  test('compiles a source that programs share once, and nothing again when nothing changed', () => {
    const { env, log } = standIns();
    for (let i = 0; i < 2; i++) runner({ ...env, INFERD_CUBLAS_INCLUDE: headers }, 'programs');
    const compiled = log().filter((line) => line.startsWith('compile'));
    assert.equal(new Set(compiled).size, compiled.length);
    assert.ok(compiled.includes('compile  norm.cu'));
  });

  test('fails when a program fails, and shows its last lines', () => {
    const { env } = standIns({ failing: 'tables_test' });
    const { status, out } = runner(env, 'programs:t');
    assert.equal(status, 1);
    assert.match(out, /tables_test +FAILED \(1\)/);
    assert.match(out, /programs +FAILED/);
  });

  test('fails when the sanitizer reports errors', () => {
    const { env } = standIns({ errors: 3 });
    const { status, out } = runner(env, 'sanitize:tables_test,memcheck');
    assert.equal(status, 1);
    assert.match(out, /tables_test +memcheck +3 +\d/);
  });

  test('says so, and does not pass, where nothing could be compiled for want of a GPU or a compiler', () => {
    const { env } = standIns({ smi: false });
    const { status, out } = runner(env, 'programs');
    assert.equal(status, 1);
    assert.match(out, /nvidia-smi names no GPU/);
    assert.match(out, /programs +not run/);
  });

  test('refuses a part that does not exist', () => {
    const { status, out } = runner(standIns().env, 'benches');
    assert.equal(status, 64);
    assert.match(out, /There is no part benches; the parts are build programs/);
  });
});

describe('the check of the GPU test programs, without a GPU', () => {
  test('looks at the own file of every program', () => {
    const { env, log } = standIns({ smi: false });
    const { status, out } = script('check.mjs', { ...env, INFERD_CUBLAS_INCLUDE: headers });
    assert.equal(status, 0, out);
    assert.deepEqual(log().sort(), programs.map(({ name }) => `check ${name}.cu`).sort());
    assert.ok(out.includes(`${programs.length} compile, 0 do not, 0 not checked`), out);
  });

  test('fails when one does not compile, and names it', () => {
    const { status, out } = script('check.mjs', standIns({ failing: 'tables_test', smi: false }).env);
    assert.equal(status, 1);
    assert.match(out, /^tables_test: .*tables_test\.cu did not compile/m);
    assert.match(out, / 1 do not, /);
  });

  test('does not pass where it could look at none', () => {
    const bin = tempFolder();
    const { status, out } = script('check.mjs', { PATH: bin, CUDA_HOME: bin });
    assert.equal(status, 1, out);
    assert.match(out, /0 compile, 0 do not/);
  });
});

describe('reading outputs', () => {
  test('counts errors of every sanitizer tool, and none where there is no summary', () => {
    assert.equal(sanitizerErrors('========= ERROR SUMMARY: 0 errors'), 0);
    assert.equal(sanitizerErrors('========= ERROR SUMMARY: 1 error'), 1);
    assert.equal(sanitizerErrors('========= RACECHECK SUMMARY: 12 hazards displayed (2 errors, 10 warnings)'), 12);
    assert.equal(sanitizerErrors('cut off'), null);
  });

  test('counts tests from either reporter', () => {
    assert.deepEqual(testCounts('ℹ tests 3\nℹ pass 2\nℹ fail 1\nℹ skipped 0\n'), { passed: 2, failed: 1, skipped: 0 });
    assert.deepEqual(testCounts('# pass 4\n# fail 0\n# skipped 1\n'), { passed: 4, failed: 0, skipped: 1 });
    assert.equal(testCounts('nothing'), null);
  });
});
