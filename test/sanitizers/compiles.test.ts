/** UBSan changes what GCC takes for a constant: the checks of the kernel tables must still be ones, on the day that the addon is built with it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../native/index.js';

test('the reference kernels compile with UBSan', () => {
  const native = join(packageRoot(), 'native');
  const flags = ['-std=c++20', '-fsyntax-only', '-fsanitize=undefined', '-I', native];
  const { status, stderr } = spawnSync(process.env['CXX'] ?? 'c++', [...flags, join(native, 'cpu', 'isa', 'kernels_reference.cpp')], {
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
});
