/** A process that cannot join its threads: what ends it, and with which code. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { addonFile, loadAddon } from '../../native/index.js';
import { nativeError } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

/** Runs `script` in a process that has a worker inside a native call which does not return, and the addon as `addon`. */
function runWithStuckWorker(script: string) {
  const fifo = join(tempFolder(), 'dead-end');
  execFileSync('mkfifo', [fifo]);
  const source = `
    const { Worker } = require('node:worker_threads');
    const addon = require(${JSON.stringify(addonFile())});
    const stuck = "const { workerData, parentPort } = require('node:worker_threads'); parentPort.postMessage(0);" +
      "require('node:fs').openSync(workerData, 'r')";
    const worker = new Worker(stuck, { eval: true, workerData: ${JSON.stringify(fifo)} });
    // It says so just before it is stuck.
    worker.once('message', () => setTimeout(() => { ${script} }, 500));
  `;
  return spawnSync(process.execPath, ['-e', source], { encoding: 'utf8', timeout: 60_000 });
}

test('exitWithin ends a process whose exit waits for a thread, with the given code', () => {
  const { status, signal } = runWithStuckWorker('addon.exitWithin(71, 300); process.exit(0);');
  assert.deepEqual([status, signal], [71, null]);
});

test('exitWithin leaves a process that ends earlier alone', () => {
  const source = `require(${JSON.stringify(addonFile())}).exitWithin(71, 60_000); process.exitCode = 3;`;
  assert.equal(spawnSync(process.execPath, ['-e', source], { timeout: 60_000 }).status, 3);
});

test('exitWithin takes codes and times within their ranges only', () => {
  const { exitWithin } = loadAddon();
  const wrong = [-1, 256, Number.NaN, '0', undefined] as number[];
  for (const code of wrong) assert.throws(() => exitWithin(code, 0), nativeError('usage', /code must be a number from 0 to 255/));
  for (const ms of [-1, 1e9, Number.NaN]) assert.throws(() => exitWithin(0, ms), nativeError('usage', /ms must be a number/));
});
