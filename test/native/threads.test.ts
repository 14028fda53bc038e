/** The CPU backend's thread pool and stream, through the ops that use them. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { it } from 'node:test';
import { Worker } from 'node:worker_threads';
import { addonFile, loadAddon } from '../../native/index.js';
import { floats, ints, isas, runOp } from '../helpers/native/op-table.js';
import { randomFloats, randomSource } from '../helpers/native/reference-ops.js';

const isa = isas[0]!;

function wideLinear(threads: number): Float32Array {
  const random = randomSource(31);
  const [rows, cols, outs] = [3, 700, 3000];
  const inputs = { x: randomFloats(random, rows * cols), weight: randomFloats(random, outs * cols) };
  return floats(runOp({ isa, threads }, 'linear', { rows, cols, outs, dtype: 'f32' }, inputs), 'out');
}

it('any number of threads, also more than processors, gives the same bits', () => {
  const one = wideLinear(1);
  for (const threads of [2, 3, 7, 16]) assert.deepEqual(wideLinear(threads), one, `${threads} threads`);
});

it('thousands of short loops on more threads than processors all finish', () => {
  const addon = loadAddon();
  const [rows, cols] = [64, 2048];
  const inputs = { inout: new Float32Array(rows * cols), x: new Float32Array(rows * cols).fill(1) };
  for (const threads of [2, 5]) {
    const result = addon.runOp({ op: 'add', backend: 'cpu', isa, threads, attrs: { rows, cols, warm: 1 }, inputs, repeat: 3000 });
    assert.equal(result['timings_us']!.length, 3000);
    assert.ok(result['inout']!.every((x) => x === 1));
  }
});

it('a chunk that finds no memory fails its loop, on whichever thread, and the next loop runs', () => {
  const count = 40;
  for (const threads of [1, 2, 7]) {
    for (const bad of [0, 17, count - 1]) {
      const result = runOp({ isa, threads }, 'loop_fails', { count, bad, times: 200 }, {});
      assert.deepEqual([...ints(result, 'caught'), ...ints(result, 'done')], [200, 200 * count], `${threads} threads, chunk ${bad}`);
    }
  }
});

it('threads that the system does not give are refused in one sentence, and fewer are taken after that', {
  skip: process.platform !== 'linux',
}, () => {
  // Stacks of 8 MB each: room for some of the 500 threads and not for all.
  const script = `
    const { execFileSync } = require('node:child_process');
    const addon = require(process.argv[1]);
    const used = 1024 * Number(/VmSize:\\s+(\\d+)/.exec(require('node:fs').readFileSync('/proc/self/status', 'utf8'))[1]);
    const limit = (bytes) => execFileSync('prlimit', ['--pid', String(process.pid), '--as=' + bytes + ':']);
    const inputs = { inout: Float32Array.of(1), x: Float32Array.of(2) };
    const add = (threads) => addon.runOp({ op: 'add', backend: 'cpu', isa: 'reference', threads, attrs: { rows: 1, cols: 1 }, inputs });
    limit(used + 400 * 2 ** 20);
    let refusal = '';
    try {
      add(500);
    } catch (error) {
      refusal = error.code + ': ' + error.message;
    }
    limit('unlimited');
    console.log(refusal + ' Then ' + add(2).inout[0]);`;
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script, addonFile()], { encoding: 'utf8' });
  assert.match(stdout, /^out_of_memory: The system gives \d+ of 500 compute threads \(.+\); ask for fewer, .* Then 3$/m, stderr);
});

it('threads = 0 takes the physical cores, and impossible numbers are refused', () => {
  assert.equal(wideLinear(0).length, 9000);
  assert.throws(() => wideLinear(100_000), /100000 CPU threads are not possible/);
});

it('backends of several JavaScript threads run side by side', async () => {
  const code = `
    const { workerData, parentPort } = require('node:worker_threads');
    const addon = require(workerData.file);
    const [rows, cols] = [200, 1000];
    const inputs = { inout: new Float32Array(rows * cols), x: new Float32Array(rows * cols).fill(workerData.value) };
    for (let i = 0; i < 20; i++) {
      const out = addon.runOp({ op: 'add', backend: 'cpu', isa: workerData.isa, threads: 2, attrs: { rows, cols }, inputs });
      if (!out.inout.every((x) => x === workerData.value)) throw new Error('wrong sum');
    }
    parentPort.postMessage('done');`;
  const file = addonFile();
  const run = (value: number) =>
    new Promise((resolve, reject) => {
      const worker = new Worker(code, { eval: true, workerData: { file, isa, value } });
      worker.once('message', resolve);
      worker.once('error', reject);
    });
  assert.deepEqual(await Promise.all([1, 2, 3].map(run)), ['done', 'done', 'done']);
});
