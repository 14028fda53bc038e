/** What the engine is asked for: the profiles that are shipped, with the choices that the README offers. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/model-folder.js';
import { topologyOf } from '../../../daemon/life/topology.js';
import { type EngineOptions, packageRoot } from '../../../native/index.js';

/** The engine of rank 0, for the demo model unless `sets` name another. */
function engineOf(profile: string, ...sets: readonly string[]): EngineOptions {
  const file = join(packageRoot(), 'config', `${profile}.toml`);
  const { config } = loadConfig({ file, sets: ['inference.model_name=demo', ...sets], env: {} });
  const [options] = topologyOf(config, resolveModelFolder(config, {})).executors;
  assert.ok(options);
  return options;
}

const profiles = ['demo', 'cpu-small', 'llama-3.1-8b', 'llama-3.1-70b-tp4'];

describe('a shipped profile', () => {
  for (const profile of profiles) {
    test(`${profile} leaves a GPU the type of keys and values, which must be that of the weights`, () => {
      for (const dtype of ['auto', 'bf16', 'f16']) {
        const { backend, kvDtype, weightDtype, quantization } = engineOf(profile, 'inference.device=cuda', `inference.dtype=${dtype}`);
        assert.deepEqual([backend, kvDtype, weightDtype, quantization], ['cuda', 'auto', dtype, 'none']);
      }
      assert.notEqual(engineOf(profile, 'inference.device=cuda').weightDtype, 'f32');
    });

    test(`${profile} runs on the CPU when told so, in a type that the CPU has`, () => {
      const { backend, kvDtype } = engineOf(profile, 'inference.device=cpu', 'inference.device_ids=[0]');
      assert.deepEqual([backend, kvDtype], ['cpu', 'f32'], 'exact for the demo model, which is small');
    });
  }
});

test('what a request for a GPU asks of keys and values is passed on', () => {
  for (const type of ['fp8', 'int8', 'bf16'])
    assert.equal(engineOf('demo', 'inference.device=cuda', `cache.cache_dtype=${type}`).kvDtype, type);
});
