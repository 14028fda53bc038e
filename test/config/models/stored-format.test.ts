/** Names of formats of weights, of golden packs of every format and of files that say less or other things. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readGguf } from '../../../config/gguf/read.js';
import { ggufFormat, safetensorsFormat } from '../../../config/models/stored-format.js';
import { fixture } from '../../helpers/native/native-engine.js';

const expected: Readonly<Record<string, string>> = {
  'quant-fp8-ct-tensor': 'compressed-tensors FP8',
  'quant-fp8-ct-channel': 'compressed-tensors FP8',
  'quant-fp8-static': 'FP8',
  'quant-fp8-block': 'FP8 in blocks',
  'quant-fp8-fbgemm': 'FP8',
  'quant-gptq-int4-sym': 'GPTQ int4',
  'quant-gptq-int8': 'GPTQ int8',
  'quant-awq-int4': 'AWQ int4',
  'quant-ct-w4a16': 'compressed-tensors int4',
  'quant-ct-w8a8-int8': 'compressed-tensors int8',
  'quant-ct-mxfp4': 'compressed-tensors MXFP4',
  'quant-ct-nvfp4': 'compressed-tensors NVFP4',
  'quant-ct-mixed': 'compressed-tensors mixed',
  'llama3.1-gqa': 'BF16',
};

describe('the name of a format', () => {
  for (const [pack, format] of Object.entries(expected)) {
    test(`of ${pack} is ${format}`, () => {
      const config = JSON.parse(readFileSync(join(fixture('golden'), pack, 'config.json'), 'utf8')) as Record<string, unknown>;
      assert.equal(safetensorsFormat(config), format);
    });
  }

  test('of a GGUF file is what it calls itself, or no more than GGUF', () => {
    const head = readGguf(fixture('golden', 'quant-demo-q4k', 'model.gguf'), () => false);
    assert.equal(ggufFormat(head), 'GGUF Q4_K_S');
    assert.equal(ggufFormat({ ...head, metadata: new Map([['general.file_type', 4711]]) }), 'GGUF');
    assert.equal(ggufFormat({ ...head, metadata: new Map() }), 'GGUF');
  });

  test('of a method that nobody knows is its name, and of a config that says nothing safetensors', () => {
    assert.equal(safetensorsFormat({ quantization_config: { quant_method: 'hqq' } }), 'hqq');
    assert.equal(safetensorsFormat({ quantization_config: { quant_method: 'constructor' } }), 'constructor');
    assert.equal(safetensorsFormat({ quantization_config: [], dtype: 'toString' }), 'safetensors');
    assert.equal(safetensorsFormat({ quantization_config: { quant_method: 'compressed-tensors' } }), 'compressed-tensors dense');
  });
});
