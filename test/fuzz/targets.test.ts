/** Fuzzing is seldom run, and needs a clang that few machines have: its targets must still fit the engine on the day that it is. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../native/index.js';

const folder = join(packageRoot(), 'test', 'fuzz');
const flags = ['-std=c++20', '-fsyntax-only', '-Wall', '-Wextra', '-Werror', '-I', join(packageRoot(), 'native')];

for (const file of readdirSync(folder).filter((name) => name.endsWith('.cpp'))) {
  test(`${file} compiles against the engine as it is`, () => {
    const { status, stderr } = spawnSync(process.env['CXX'] ?? 'c++', [...flags, join(folder, file)], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
  });
}
