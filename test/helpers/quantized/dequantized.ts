/** Models in float32 whose weights are what the engine's quantizer of loading makes of those of another. */
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { floats, runOp } from '../native/op-table.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../native/safetensors.js';

/** Routers, the gate of shared experts, the biases of stacked ones, and what latent attention takes apart, are never quantized. */
const alwaysPlain = /\.(gate|router|shared_expert_gate|kv_b_proj)\.weight$|_bias$/;

type Format = 'int8' | 'int4';

function transposed(data: Float32Array, rows: number, cols: number): Float32Array {
  return data.map((_, i) => data[(i % rows) * cols + Math.floor(i / rows)] ?? Number.NaN);
}

/** Writes the model of the folder `from` with each linear weight replaced by what its quantized form stands for. The head keeps int8. */
export function writeDequantized(from: string, folder: string, format: Format): void {
  const config = JSON.parse(readFileSync(join(from, 'config.json'), 'utf8')) as Record<string, unknown>;
  const tensors = new Map<string, { shape: readonly number[]; data: Float32Array }>();
  const quantized = (data: Float32Array, shape: readonly number[], dtype: Format): Float32Array => {
    const [rows = 0, cols = 0] = shape;
    return floats(runOp({ isa: 'reference' }, 'quantize', { rows, cols, dtype }, { weight: data }), 'out');
  };
  // Matrices of experts, [inputs, outputs] each: blocks go along the inputs.
  const stacked = (data: Float32Array, [experts = 0, inputs = 0, outputs = 0]: readonly number[]): Float32Array => {
    const matrices = Array.from({ length: experts }, (_, e) => {
      const upright = transposed(data.subarray(e * inputs * outputs, (e + 1) * inputs * outputs), inputs, outputs);
      return [...transposed(quantized(upright, [outputs, inputs], format), outputs, inputs)];
    });
    return Float32Array.from(matrices.flat());
  };
  for (const [name, { shape, data }] of readSafetensors(join(from, 'model.safetensors'))) {
    const weight = widenedBf16(data);
    const linear = shape.length === 2 && !name.includes('embed_tokens') && !alwaysPlain.test(name);
    if (shape.length === 3) tensors.set(name, { shape, data: stacked(weight, shape) });
    else tensors.set(name, { shape, data: linear ? quantized(weight, shape, name === 'lm_head.weight' ? 'int8' : format) : weight });
  }
  // A tied head is quantized, the table that ids are looked up in is not.
  const table = tensors.get('model.embed_tokens.weight');
  if (config['tie_word_embeddings'] === true && table !== undefined)
    tensors.set('lm_head.weight', { shape: table.shape, data: quantized(table.data, table.shape, 'int8') });
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, tie_word_embeddings: false }));
  writeSafetensors(join(folder, 'model.safetensors'), tensors);
  copyFileSync(join(from, 'tokenizer.json'), join(folder, 'tokenizer.json'));
}
