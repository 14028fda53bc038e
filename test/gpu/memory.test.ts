/**
 * Memory of a GPU: what does not fit is refused with the arithmetic before anything is loaded, the KV cache takes what
 * cache.gpu_memory_utilization leaves of the whole memory, and steps of the largest size, recorded or not, take no more than was there.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { kvBlocks } from '../../actors/executor/capacity.js';
import { admissionPlan, decodePlan, prefillPlans } from '../../daemon/cli/bench/plans.js';
import { type EngineOptions, loadAddon } from '../../native/index.js';
import { answer, engineOptions, fixture, nativeError } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

const mib = 2 ** 20;
/** Kernels that are loaded when they first run, and graphs: not in the pool, and within the share that the utilization leaves. */
const unplannedMib = 512;

const cuda = (options: Partial<EngineOptions>): Partial<EngineOptions> => ({
  backend: 'cuda',
  loadDummy: true,
  kvDtype: 'auto',
  ...options,
});

/** Of the first GPU, MiB, all processes together. */
function used(): number {
  return Number(execFileSync('nvidia-smi', ['--query-gpu=memory.used', '--format=csv,noheader,nounits', '--id=0'], { encoding: 'utf8' }));
}

test('a model that does not fit is refused before it is loaded, with the arithmetic', () => {
  const folder = tempFolder();
  const config = JSON.parse(readFileSync(join(fixture('shapes', 'llama-3-8b'), 'config.json'), 'utf8'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: 1000 }));
  assert.throws(
    () => loadAddon().createEngine(engineOptions(folder, cuda({ maxBatchTokens: 2048 }))),
    nativeError('out_of_memory', /weights need \d+\.\d+ GiB \(\d+\.\d+ billion parameters, bf16\) and steps of 2048 tokens .* are free/),
  );
});

test('the KV cache follows the utilization, and steps of every size stay within it', (t) => {
  const shape = { batch: 64, length: 128, steps: 8, blockSize: 16 };
  const options = engineOptions(
    fixture('shapes', 'llama-3-8b'),
    cuda({ maxSlots: shape.batch, maxBatchTokens: shape.batch * shape.length, maxModelLen: 1024, graphSizes: [1, 8, 64] }),
  );
  const engine = loadAddon().createEngine(options);
  try {
    while (!engine.load(256 * mib).done);
    const { freeBytes, totalBytes, stepBytes, blockBytes, weightBytes } = engine.info();
    assert.ok(totalBytes - freeBytes >= weightBytes + stepBytes, 'weights and step memory are taken before the pool is sized');
    const utilization = (totalBytes - freeBytes + 4096 * mib) / totalBytes;
    const { maxSlots, maxModelLen, blockSize } = options;
    const input = {
      backend: 'cuda',
      freeBytes,
      totalBytes,
      stepBytes,
      blockBytes,
      blockSize,
      maxSlots,
      maxModelLen,
      override: null,
      numRanks: 1,
    } as const;
    const blocks = kvBlocks({ ...input, utilization });
    assert.ok(Math.abs(blocks * blockBytes - 4096 * mib) <= blockBytes, 'the pool is what the utilization leaves');
    engine.allocateKv(blocks);
    const before = used();
    engine.submit(admissionPlan(shape, 128_256, 0));
    answer(engine);
    for (const plan of prefillPlans(shape, options.maxBatchTokens)) {
      engine.submit(plan);
      assert.equal(answer(engine).errorCode, 0);
    }
    for (let step = 0; step < shape.steps; step++) {
      engine.submit(decodePlan(shape, shape.length + step));
      assert.equal(answer(engine).errorCode, 0);
    }
    const after = used();
    t.diagnostic(
      `${blocks} blocks; ${before} MiB used before the first step, ${after} after the largest, at ${(utilization * totalBytes) / mib} MiB`,
    );
    assert.ok(after - before <= unplannedMib, `steps took ${after - before} MiB`);
    assert.ok(after <= (utilization * totalBytes) / mib + unplannedMib, `${after} MiB are used`);
  } finally {
    engine.close();
  }
});
