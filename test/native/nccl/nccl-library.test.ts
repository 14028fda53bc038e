/**
 * How ranks on GPUs find NCCL and choose between it and the kernels of inferd, without a GPU and without NCCL: the loader of the CUDA backend
 * and the choice, compiled here, beside a library that stands in for NCCL.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { packageRoot } from '../../../native/index.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const native = join(packageRoot(), 'native');
const sources = join(packageRoot(), 'test', 'native', 'nccl');
const compile = (...args: readonly string[]): void => {
  execFileSync(process.env['CXX'] ?? 'c++', ['-std=c++20', '-Wall', '-Wextra', '-Werror', ...args]);
};

/** A library of the name that NCCL has, in a folder of its own. @returns its path. */
function standIn(...flags: readonly string[]): string {
  const file = join(tempFolder(), 'libnccl.so.2');
  compile('-shared', '-fPIC', '-o', file, join(sources, 'stand_in_nccl.cpp'), ...flags);
  return file;
}

let program: string;
before(() => {
  program = join(tempFolder(), 'nccl_check');
  const own = [join(sources, 'nccl_check.cpp'), join(native, 'cuda', 'ranks', 'nccl', 'nccl_library.cpp')];
  compile(`-I${native}`, '-o', program, ...own, '-ldl');
});

/** Runs the program with nothing of NCCL in its environment but `env`. @returns a value for each line. */
function check(what: 'library' | 'calls' | 'ways' | 'shots', env: NodeJS.ProcessEnv = {}): unknown[] {
  const { status, stdout, stderr } = spawnSync(program, [what], { env, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
}

interface Found {
  readonly problem: string;
  readonly version: string;
  readonly settings: Readonly<Record<string, string>>;
}
const library = (env: NodeJS.ProcessEnv): Found => check('library', env)[0] as Found;

describe('the loader of NCCL', () => {
  test('takes the library that INFERD_NCCL names, or the one that the system finds', () => {
    const file = standIn();
    for (const env of [{ INFERD_NCCL: file }, { LD_LIBRARY_PATH: join(file, '..') }]) {
      const { problem, version } = library(env);
      assert.deepEqual([problem, version], ['', '2.28.3']);
    }
  });

  test('says in one sentence what is wrong and what to do', () => {
    const problemOf = (file: string): string => library({ INFERD_NCCL: file }).problem;
    const text = join(tempFolder(), 'libnccl.so.2');
    writeFileSync(text, 'no library');
    const cases: readonly (readonly [string, RegExp])[] = [
      [
        '/nowhere/libnccl.so.2',
        /^NCCL could not be loaded from INFERD_NCCL: \/nowhere.*; name the file libnccl\.so\.2 of NCCL 2\.19 or newer\.$/,
      ],
      [text, /^NCCL could not be loaded from INFERD_NCCL: .*; name the file/],
      [
        standIn('-DSTAND_IN_VERSION=21803'),
        /^NCCL 2\.18\.3 was found, and 2\.19 or newer is needed; install one, or put its path in INFERD_NCCL\.$/,
      ],
      [standIn('-DSTAND_IN_VERSION=2804'), /^NCCL 2\.8 or older was found, and 2\.19 or newer is needed;/],
      [
        standIn('-DSTAND_IN_LACKS_ABORT'),
        /^The library libnccl\.so\.2 .* is not NCCL 2\.19 or newer, as it lacks ncclCommAbort; install one that is/,
      ],
      [standIn('-DSTAND_IN_REFUSES'), /^NCCL does not tell its version: internal error; install NCCL 2\.19 or newer\.$/],
    ];
    for (const [file, sentence] of cases) assert.match(problemOf(file), sentence);
    assert.equal(library({ INFERD_NCCL: standIn('-DSTAND_IN_VERSION=21900') }).version, '2.19.0');
  });

  test('says where to get it when it is nowhere', (t) => {
    const { problem } = library({});
    if (problem === '') return t.skip('this system has NCCL');
    assert.match(problem, /^NCCL was not found \(libnccl\.so\.2\); install NCCL 2\.19 or newer .* INFERD_NCCL\.$/);
  });

  test('turns multicast off, and whatever makes a rank wait for others in a call, whatever the user says', () => {
    const fixed = { NCCL_NVLS_ENABLE: '0', NCCL_RUNTIME_CONNECT: '0', NCCL_GRAPH_REGISTER: '0', NCCL_LAUNCH_MODE: 'PARALLEL' };
    const file = standIn();
    assert.deepEqual(library({ INFERD_NCCL: file }).settings, { ...fixed, NCCL_SOCKET_IFNAME: 'lo' });
    const others = { NCCL_NVLS_ENABLE: '1', NCCL_LAUNCH_MODE: 'GROUP', NCCL_SOCKET_IFNAME: 'eth0' };
    assert.deepEqual(library({ INFERD_NCCL: file, ...others }).settings, { ...fixed, NCCL_SOCKET_IFNAME: 'eth0' });
  });

  test('calls with the numbers of the documented interface', () => {
    const log = join(tempFolder(), 'log');
    assert.deepEqual(check('calls', { INFERD_NCCL: standIn(), STAND_IN_LOG: log }), [{ error: 'remote process exited' }]);
    assert.deepEqual(readFileSync(log, 'utf8').trim().split('\n'), [
      'start',
      'join 1 of 2 whole',
      'end',
      'sum 12 of type 9 by 0 for 1 on 0x5',
      'gather 34 of type 1 for 1 on 0x5',
      'abort',
    ]);
  });
});

test('the kernels of inferd carry sums where GPUs reach each other, and NCCL where they do not or it is asked for', () => {
  const apart = 'GPU 2 cannot reach the memory of GPU 5, which ranks of one model need; choose others in inference.device_ids';
  const away = 'NCCL is away; fetch it.';
  const [auto, own, nccl] = [0, 1, 2];
  // What is asked for, whether the GPUs reach each other and NCCL is there; who carries sums, whether NCCL was looked for, what is said.
  assert.deepEqual(check('ways'), [
    [auto, true, true, 'own', false, ''],
    [auto, true, false, 'own', false, ''],
    [auto, false, true, 'nccl', true, ''],
    [auto, false, false, 'nccl', true, `${apart}, or have NCCL carry their sums, but: ${away}`],
    [own, true, true, 'own', false, ''],
    [own, true, false, 'own', false, ''],
    [own, false, true, 'own', false, ''],
    [own, false, false, 'own', false, ''],
    [nccl, true, true, 'nccl', true, ''],
    [nccl, true, false, 'nccl', true, `parallel.all_reduce is 'nccl', but: ${away}`],
    [nccl, false, true, 'nccl', true, ''],
    [nccl, false, false, 'nccl', true, `parallel.all_reduce is 'nccl', but: ${away}`],
  ]);
});

test('sums go in two shots from the size on from which that was always faster, or else from a usual one, and never of two ranks', () => {
  const [never, kib] = [-1, 1024];
  // Ranks; bytes where nothing was measured; bytes as measured.
  assert.deepEqual(check('shots'), [
    [2, never, never],
    [3, 512 * kib, 512 * kib],
    [4, 256 * kib, 256 * kib],
    [5, 256 * kib, 256 * kib],
    [8, 256 * kib, 256 * kib],
    [2, never, never],
    [4, 256 * kib, 400],
    [4, 256 * kib, 400],
    [8, 256 * kib, 100],
    [8, 256 * kib, 201],
  ]);
});
