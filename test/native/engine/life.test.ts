/** The life of an engine behind its JavaScript face: order of calls, options, loading, and ends in the middle of work. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { addonFile, type EngineOptions, loadAddon, type NativeError } from '../../../native/index.js';
import { blockSets, engineOptions, nativeError, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { buildPlan } from '../../helpers/native/plan.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';
import { open, pack, prefill, vocab } from './rig.js';

describe('the life of an engine', () => {
  test('calls out of order are usage errors', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    const plan = buildPlan(prefill(0, 0));
    assert.throws(() => engine.submit(plan), nativeError('usage', /after allocateKv/));
    assert.throws(() => engine.allocateKv(8), nativeError('usage', /after the weights/));
    assert.throws(() => engine.wait(new Uint8Array(64), 0), nativeError('usage', /no step in flight/));
    while (!engine.load(10_000).done);
    assert.throws(() => engine.submit(plan), nativeError('usage', /after allocateKv/));
    assert.throws(() => engine.allocateKv(0), nativeError('usage', /numBlocks is 0/));
    engine.allocateKv(8);
    assert.throws(() => engine.allocateKv(8), nativeError('usage', /once/));
    engine.close();
    engine.close();
    assert.throws(() => engine.info(), nativeError('closed', /closed/));
    assert.throws(() => engine.submit(plan), nativeError('closed', /closed/));
  });

  test('loading goes in pieces of about the size asked for and tells how far it is', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    let last = 0;
    let calls = 0;
    for (;;) {
      const p = engine.load(50_000);
      calls++;
      assert.ok(p.doneBytes > last && p.doneBytes - last < 100_000, `${p.doneBytes - last} bytes in one call`);
      last = p.doneBytes;
      if (!p.done) continue;
      assert.equal(p.doneBytes, p.totalBytes);
      break;
    }
    assert.ok(calls > 5);
    assert.equal(engine.load(1).done, true);
    engine.close();
  });

  test('info tells sizes that add up', () => {
    const engine = open({ kvDtype: 'bf16', blockSize: 8 });
    const info = engine.info();
    assert.equal(info.architecture, 'LlamaForCausalLM');
    assert.equal(info.vocabSize, vocab);
    assert.equal(info.blockBytes, 3 * 2 * 2 * 64 * 8 * 2);
    assert.equal(info.parameters, 2 * 320 * 64 + 3 * (2 * 64 + 256 * 64 * 2 + 128 * 64 * 2 + 3 * 176 * 64) + 64);
    assert.equal(info.dtype, 'bf16');
    assert.ok(info.freeBytes > 0 && info.totalBytes >= info.freeBytes && info.stepBytes > 0 && info.weightBytes > 0);
    assert.match(info.backend, /^cpu \S+ x2$/);
    engine.close();
  });

  test('a KV pool that cannot fit is refused with the arithmetic', () => {
    const engine = loadAddon().createEngine(engineOptions(pack));
    while (!engine.load(1 << 24).done);
    assert.throws(
      () => engine.allocateKv(2 ** 26),
      nativeError('out_of_memory', /blocks of 49152 bytes \(3 layers x 2 x 2 heads x 64 dims x 16 tokens x f32\) need 3072\.00 GiB/),
    );
    engine.allocateKv(4);
    engine.close();
  });

  const refused: readonly (readonly [options: Record<string, unknown>, code: NativeError['code'], message: RegExp])[] = [
    // What is missing depends on the machine: the library, the driver, or only this GPU.
    [{ backend: 'cuda', deviceId: 63 }, 'unsupported', /no CUDA backend|No NVIDIA driver|GPU/],
    [{ backend: 'metal' }, 'unsupported', /no backend "metal"/],
    [{ isa: 'sse9' }, 'unsupported', /sse9/],
    [{ quantization: 'int2' }, 'usage', /quantization is "int2"; none, int8, int4 and fp8 are known/],
    [{ worldSize: 2, group: 1, commTimeoutMs: 0 }, 'usage', /commTimeoutMs is 0/],
    [{ worldSize: 2, group: 1, commTimeoutMs: 1, rank: 2 }, 'usage', /rank is 2, outside 0\.\.1/],
    [{ worldSize: 2, group: 1, commTimeoutMs: 1, allReduce: 'ring' }, 'usage', /allReduce is "ring"; auto, own and nccl are known/],
    [{ worldSize: 2 }, 'usage', /group must be a whole number/],
    [{ kvDtype: 'fp4' }, 'usage', /kvDtype is "fp4"; f32, f16, bf16, fp8 and int8 are known/],
    [{ blockSize: 0 }, 'usage', /blockSize is 0/],
    [{ maxSlots: -1 }, 'usage', /maxSlots is -1/],
    [{ maxBatchTokens: 2 ** 31 }, 'usage', /maxBatchTokens must be a whole number/],
    [{ maxModelLen: 1.5 }, 'usage', /maxModelLen must be a whole number/],
    [{ loadDummy: 'yes' }, 'usage', /loadDummy must be true or false/],
    [{ modelPath: 7 }, 'usage', /modelPath must be a string/],
    [{ modelPath: '/nonexistent' }, 'io', /Cannot open \/nonexistent\/config.json: No such file/],
  ];
  for (const [options, code, message] of refused) {
    test(`options with ${JSON.stringify(options)} are refused`, () => {
      assert.throws(() => loadAddon().createEngine({ ...engineOptions(pack), ...options } as EngineOptions), nativeError(code, message));
    });
  }

  test('random weights load without a checkpoint and are the same every time', () => {
    withModelFolder({ ...tinyConfig, tie_word_embeddings: true }, (folder) => {
      const tokens = [1, 2].map(() => {
        const engine = openEngine(folder, { loadDummy: true, weightDtype: 'f32' }, 8);
        const out = runStep(engine, {
          ...prefill(0, 0, [1, 2, 3]),
          newSlots: [{ slot: 0, tokens: [1, 2, 3], sampling: { topLogprobs: 3 } }],
        });
        engine.close();
        return out.samples;
      });
      assert.deepEqual(tokens[0], tokens[1]);
      assert.ok(Number.isFinite(tokens[0]?.[0]?.logprob));
    });
  });

  test('a worker thread that is terminated with a step in flight takes its engine down cleanly', async () => {
    const code = `
      const { parentPort, workerData } = require('node:worker_threads');
      const addon = require(workerData.addon);
      const engine = addon.createEngine(workerData.options);
      while (!engine.load(1 << 24).done);
      engine.allocateKv(16);
      for (const plan of workerData.plans) engine.submit(plan);
      parentPort.postMessage(engine.pending());
      for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);`;
    const tokens = Array.from({ length: 200 }, (_, i) => i);
    const plans = [
      buildPlan({ newSlots: [{ slot: 0, tokens }], blockSets: blockSets(0, 0, 16), rows: [{ slot: 0, start: 0, count: 200 }] }),
      buildPlan({ rows: [{ slot: 0, start: 0, count: 200 }] }),
    ];
    for (let i = 0; i < 3; i++) {
      const worker = new Worker(code, { eval: true, workerData: { addon: addonFile(), plans, options: engineOptions(pack) } });
      const pending = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      assert.equal(pending, 2);
      await worker.terminate();
    }
  });
});

test('threads that are terminated inside calls, also calls that fail, do not take the process down', () => {
  const thread = `
    const { parentPort, workerData } = require('node:worker_threads');
    const addon = require(workerData);
    parentPort.postMessage('running');
    for (;;) {
      addon.systemInfo();
      try {
        addon.createEngine({});
      } catch {}
    }`;
  const script = `
    const { Worker } = require('node:worker_threads');
    (async () => {
      for (let i = 0; i < 30; i++) {
        const worker = new Worker(${JSON.stringify(thread)}, { eval: true, workerData: process.argv[1] });
        await new Promise((resolve) => worker.once('message', resolve));
        await new Promise((resolve) => setTimeout(resolve, i % 7));
        await worker.terminate();
      }
    })();`;
  const { status, signal, stderr } = spawnSync(process.execPath, ['-e', script, addonFile()], { encoding: 'utf8' });
  assert.deepEqual([status, signal], [0, null], stderr);
});
