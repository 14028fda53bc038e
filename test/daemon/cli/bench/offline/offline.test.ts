/** `inferd bench offline` as a user meets it, with the demo model in a process of its own. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type OfflineRun, resultJson, resultText } from '../../../../../daemon/cli/bench/offline/result.js';
import { packageRoot } from '../../../../../native/index.js';
import { privateEnv } from '../../../../helpers/daemon/daemon.js';
import { tempFolder } from '../../../../helpers/temp-folder.js';

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const folder = tempFolder();
const main = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');

/** `interruptAt`: Ctrl-C when it has said so. */
function bench(args: readonly string[], interruptAt: RegExp | null = null): Promise<Result> {
  const child = spawn(process.execPath, [main, 'bench', 'offline', ...args], { env: privateEnv(), cwd: folder });
  const result = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    result.stderr += text;
    if (interruptAt?.test(text)) child.kill('SIGINT');
  });
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...result })));
}

const line = 'The fox told the mouse a story about the moon and the sea.';
const talks = JSON.stringify(Array.from({ length: 8 }, (_, i) => ({ conversations: [{ value: `${line} ${i}` }, { value: line }] })));

test('random prompts get answers of their full length, counted and timed under the keys of the original', async () => {
  const { code, stdout, stderr } = await bench(['--input-len', '20', '--output-len', '8', '--num-prompts', '10', '--json']);
  assert.deepEqual([code, stderr], [0, '']);
  const r = JSON.parse(stdout) as Record<string, number>;
  assert.deepEqual(
    [r['model'], r['num_requests'], r['total_input_tokens'], r['total_output_tokens'], r['total_num_tokens']],
    ['demo', 10, 200, 80, 280],
  );
  const near = (a = 0, b = 0): boolean => Math.abs(a - b) < 1e-9 * b;
  assert.ok(near(r['requests_per_second'], 10 / (r['elapsed_time'] ?? 0)));
  assert.ok(near(r['tokens_per_second'], 280 / (r['elapsed_time'] ?? 0)));
  assert.ok(near(r['output_tokens_per_second'], 80 / (r['elapsed_time'] ?? 0)));
});

test('a table for people, a profile, several answers a prompt, and texts of a file', async () => {
  writeFileSync(join(folder, 'talks.json'), talks);
  const args = ['--dataset-name', 'sharegpt', '--dataset-path', 'talks.json', '--num-prompts', '4', '--sharegpt-output-len', '5'];
  const more = ['--n', '2', '--temperature', '1', '--profile', '--set', `profile.directory=${JSON.stringify(folder)}`];
  const { code, stdout, stderr } = await bench([...args, ...more]);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(
    stdout,
    /^model +demo, dataset sharegpt, seed 0\nrequests +4 answered in [\d.]+ s, [\d.]+ a second\ntokens +\d+ in, 40 out; /,
  );
  assert.match(stdout, /\nprofile +\S+\.trace\.json\.gz/);
});

test('what is wrong is said in one sentence before or after the engine was asked', async () => {
  const unknown = await bench(['--dataset-name', 'nope']);
  assert.equal(unknown.code, 64);
  assert.match(unknown.stderr, /^inferd: --dataset-name "nope" is not known; expected one of random/);
  const missing = await bench(['--dataset-name', 'sonnet']);
  assert.deepEqual([missing.code, missing.stdout], [64, '']);
  const long = await bench(['--input-len', '5000', '--num-prompts', '2']);
  assert.equal(long.code, 65);
  assert.match(long.stderr, /^inferd: prompts\[0\]: The prompt has .* tokens/);
});

test('a dataset that is too small is told, and Ctrl-C in the middle ends the run with 130 and no figures', async () => {
  writeFileSync(join(folder, 'short.json'), talks);
  const args = ['--dataset-name', 'sharegpt', '--dataset-path', 'short.json', '--num-prompts', '2000', '--sharegpt-output-len', '3900'];
  const { code, stdout, stderr } = await bench(args, /usable prompts/);
  assert.deepEqual([code, stdout, stderr], [130, '', 'inferd: the dataset has only 8 usable prompts of 2000\n']);
});

test('a run that took no time has no rates', () => {
  const run: OfflineRun = { model: 'm', dataset: 'random', seed: 1, elapsedS: 0, usages: [], profile: null };
  assert.equal(resultJson(run)['tokens_per_second'], 0);
  assert.match(resultText(run), /^model +m.*\nrequests +0 answered in 0\.00 s, 0\.00 a second\n/);
});
