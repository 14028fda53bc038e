/** The threads that fill page-locked memory while weights are loaded onto a GPU, compiled here, without one. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { packageRoot } from '../../../native/index.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const native = join(packageRoot(), 'native');
const sources = [
  join(packageRoot(), 'test', 'native', 'runtime', 'fill_threads_check.cpp'),
  join(native, 'cuda', 'runtime', 'fill_threads.cpp'),
];

/** Compiles and runs the check. A sanitizer that finds something ends it with another status, which throws here. @returns what it counted. */
function check(...flags: readonly string[]): Record<string, number> {
  const program = join(tempFolder(), 'fill_threads_check');
  execFileSync(process.env['CXX'] ?? 'c++', ['-std=c++20', '-O1', '-pthread', `-I${native}`, ...flags, '-o', program, ...sources]);
  return JSON.parse(execFileSync(program, { encoding: 'utf8' })) as Record<string, number>;
}

describe('threads that fill buffers', () => {
  const wanted = (20 * 70 * 71) / 2;
  for (const [what, flags] of [
    ['do each piece once, on more threads than one, and are done when their call returns', []],
    ['share nothing without a lock', ['-fsanitize=thread', '-g']],
  ] as const) {
    test(what, () => {
      const { threads, ...counts } = check(...flags);
      assert.deepEqual(counts, { wanted, called: wanted, again: 0, late: 0 });
      assert.ok(threads! > 1 || availableParallelism() === 1, `${threads} threads`);
    });
  }
});
