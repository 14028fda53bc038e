/**
 * The group of ranks over NCCL without a GPU, compiled with stand-ins for CUDA and NCCL: nccl_group_check.cpp says what is checked. That the
 * calls themselves do what they say is for test/gpu/ranks.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../native/index.js';
import { tempFolder } from '../../helpers/temp-folder.js';

/** Far more than it takes: whoever waits for ever is told by this. */
const LIMIT_MS = 60_000;

test('ranks over NCCL wait for each other nowhere but in collectives, and end once and together', () => {
  const native = join(packageRoot(), 'native');
  const sources = join(packageRoot(), 'test', 'native', 'nccl');
  const program = join(tempFolder(), 'nccl_group_check');
  const own = ['cuda/ranks/nccl/nccl_group.cpp', 'cuda/ranks/rank_member.cpp', 'cpu/runtime/comm.cpp'].map((file) => join(native, file));
  const flags = ['-std=c++20', '-O1', '-pthread', '-Wall', '-Wextra', '-Werror', `-I${join(sources, 'stub')}`, `-I${native}`];
  execFileSync(process.env['CXX'] ?? 'c++', [...flags, '-o', program, join(sources, 'nccl_group_check.cpp'), ...own]);
  const { status, stdout, stderr } = spawnSync(program, { encoding: 'utf8', timeout: LIMIT_MS });
  assert.equal(status, 0, `${stdout}${stderr}`);
});
