/** The script that npm runs after an install in a clone, and npx at its first use there. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../native/index.js';

test('at the first use by npx nothing is built again; after an install all is', () => {
  // Where no program is found, whatever it would run fails.
  const prepare = (command: string): number | null =>
    spawnSync(process.execPath, [join(packageRoot(), 'daemon/cli/prepare.mjs')], { env: { PATH: '', npm_command: command } }).status;
  assert.equal(prepare('exec'), 0);
  for (const command of ['install', 'ci']) assert.notEqual(prepare(command), 0, command);
});
