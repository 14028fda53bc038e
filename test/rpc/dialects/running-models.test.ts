/** The models that are loaded, as Ollama's clients show them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at } from '../harness.js';
import { ask, serve } from './asking.js';

/** `size_vram` and `size` of the model, where the engine names its backend so. */
async function sizes(backend: string): Promise<readonly unknown[]> {
  const served = serve({ script: ['ok'] });
  const model = served.engine.model();
  served.engine.model = () => ({ ...model, backend });
  const { body } = await ask(served, 'ollama.ps', {});
  return [at(body, 'models', 0, 'size_vram'), at(body, 'models', 0, 'size')];
}

test('a model on a GPU has all of its bytes there, one on the CPU none', async () => {
  assert.deepEqual(await sizes('cpu avx2 x8'), [0, 1000]);
  assert.deepEqual(await sizes('cuda NVIDIA H200'), [1000, 1000]);
});
