/** `inferd load`, `unload` and `ps` against a running daemon with a second model. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { packageRoot } from '../../../native/index.js';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const model = 'llama3.1-gqa';

test('a model is loaded, shown and unloaded by name', async () => {
  const folder = tempFolder();
  cpSync(join(packageRoot(), 'test', 'fixtures', 'golden', model), join(folder, model), { recursive: true });
  const at = await startTestDaemon(['cache.num_gpu_blocks_override=512', `models.directories=["${folder}"]`]);
  const inferd = async (...args: string[]) => {
    const main = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');
    try {
      return { code: 0, ...(await promisify(execFile)(process.execPath, [main, ...args], { env: at.env })) };
    } catch (error) {
      return error as { readonly code: number; readonly stdout: string; readonly stderr: string }; // proof: what execFile rejects with
    }
  };
  assert.doesNotMatch((await inferd('ps')).stdout, /llama3/);
  assert.match((await inferd('ps', '--all')).stdout, /llama3\.1-gqa .*unloaded/);
  const loaded = await inferd('load', model);
  assert.equal(loaded.code, 0, loaded.stderr);
  assert.match(loaded.stdout, /^llama3\.1-gqa is loaded \(.*\)\.\n$/);
  assert.match((await inferd('ps')).stdout, /llama3\.1-gqa .*ready/);
  assert.equal((await inferd('unload', model)).stdout, `${model} is unloaded.\n`);
  const again = await inferd('unload', model);
  assert.match(again.stderr, /The model "llama3\.1-gqa" is not loaded/);
  for (const verb of ['load', 'unload']) {
    const unknown = await inferd(verb, 'nothing');
    assert.equal(unknown.code, 66);
    assert.match(unknown.stderr, /"nothing" is not served here; this daemon serves "demo", "llama3\.1-gqa"; "inferd list" shows/);
    assert.doesNotMatch(unknown.stderr, /--model/);
  }
  await at.close();
});
