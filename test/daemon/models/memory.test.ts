/**
 * Memory of several models on a host: each leaves room for the next, and together they never reserve more than there is. What is planned
 * of keys and values is what an engine then takes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kvBlocks } from '../../../actors/executor/capacity.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { Memory, modelNeed } from '../../../daemon/models/memory.js';
import { float8CacheScheme, openPack, withPackConfig } from '../../helpers/native/golden.js';

const GiB = 2 ** 30;

test('ten models fit beside the default one, and what they reserve is there', () => {
  const { config } = loadConfig({ env: {}, sets: ['inference.device=cpu'] });
  const model = resolveModelFolder(config, {});
  const free = 22 * GiB;
  // Nothing is touched yet: to the system all of it stays free.
  const probe = { hostFree: () => free, resident: () => 0, deviceTotal: () => 0 };
  const memory = new Memory({ probe, always: 'first', plan: () => ({ model, config, device: 'cpu' }) });
  const { weights, kv } = modelNeed({ model, config });
  const perSequence = model.maxModelLen / config.cache.block_size;
  const blockBytes = kv / perSequence;
  let reserved = 0;
  for (const name of ['first', ...Array.from({ length: 10 }, (_, i) => `other-${i}`)]) {
    assert.equal(memory.lacks(name, []), null, name);
    memory.plan(name);
    const { gpu_memory_utilization: utilization } = memory.configFor(name).cache;
    const totalBlocks = kvBlocks({
      ...{ backend: 'cpu', freeBytes: free - weights, totalBytes: free, stepBytes: 0, blockBytes, blockSize: config.cache.block_size },
      ...{ maxSlots: 512, maxModelLen: model.maxModelLen, utilization, override: null, numRanks: 1 },
    });
    assert.ok(totalBlocks >= perSequence, name);
    memory.measured(name, { weightBytes: weights, totalBlocks, blockBytes } as Parameters<Memory['measured']>[1]); // proof: all it reads
    reserved += weights + totalBlocks * blockBytes;
  }
  assert.ok(reserved < free, `${reserved}`);
});

for (const pack of ['llama3.1-gqa', 'qwen3-qknorm', 'deepseek-v2', 'deepseek-v3-mla']) {
  for (const [kvDtype, more] of [
    ['f32', {}],
    ['fp8', float8CacheScheme],
  ] as const) {
    test(`keys and values are planned as the engine lays them out: ${pack}, ${kvDtype}`, () => {
      withPackConfig(pack, more, (folder) => {
        const { config } = loadConfig({ env: {}, sets: [`inference.model_name=${JSON.stringify(folder)}`] });
        const model = resolveModelFolder(config, {});
        const { block_size: blockSize } = config.cache;
        const engine = openPack(pack, { blockSize, kvDtype });
        assert.equal(modelNeed({ model, config }).kv, Math.ceil(model.maxModelLen / blockSize) * engine.info().blockBytes);
        engine.close();
      });
    });
  }
}
