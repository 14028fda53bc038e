/**
 * Tiny checkpoints of seven architectures with weights quantized while loading. First against the same engine with the dequantized
 * weights in float32, which must agree closely: what the quantized products add of their own. Then against the float32 logits of
 * transformers: what the formats cost on these models. And the batch invariance.
 */
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { loadAddon } from '../../native/index.js';
import { errors, type Golden, generate, hasExperts, medianError, openPack, packs, readGolden } from '../helpers/native/golden.js';
import { fixture, openEngine } from '../helpers/native/native-engine.js';
import { floats, roundsActivations, runOp } from '../helpers/native/op-table.js';
import { readSafetensors, widenedBf16, writeSafetensors } from '../helpers/native/safetensors.js';
import { withModelFolder } from '../helpers/native/tiny-model.js';

/** Routers, the gate of shared experts, the biases of stacked ones, and what latent attention takes apart, are never quantized. */
const alwaysPlain = /\.(gate|router|shared_expert_gate|kv_b_proj)\.weight$|_bias$/;

type Format = 'int8' | 'int4';

/**
 * Relative root mean square errors of the logits against transformers. Seen: int8 0.023 to 0.043 with float32 activations, 0.034 to 0.063
 * with quantized ones; int4 0.32 to 0.50. The weights of these models are random, so nothing in them has learned to bear rounding, and
 * the int4 bound tells a broken format from a working one, no more; the evaluation set of the demo model is what judges answers.
 */
const bounds = { int8: 0.09, int4: 0.7 } as const;
/** Of the position in the middle where a pack has experts. Seen: int8 0.03 to 0.2, int4 0.45 to 0.7. */
const medianBounds = { int8: 0.3, int4: 0.9 } as const;
/** Against the dequantized weights in float32, where activations stay float32. */
const sameWeights = 1e-6;

const { usableIsas } = loadAddon().systemInfo();
const isas = usableIsas.filter((isa) => isa !== 'reference');
/** A set whose activations stay float32 beside quantized weights. */
const plainIsa = usableIsas.find((isa) => !roundsActivations(isa)) ?? 'reference';

function transposed(data: Float32Array, rows: number, cols: number): Float32Array {
  return data.map((_, i) => data[(i % rows) * cols + Math.floor(i / rows)] ?? Number.NaN);
}

/** Writes the pack with each linear weight replaced by what its quantized form stands for. The head keeps int8. */
function writeDequantized(pack: string, folder: string, format: Format): void {
  const from = join(fixture('golden'), pack);
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

for (const pack of packs) {
  describe(pack, () => {
    const golden = readGolden(pack);

    for (const format of ['int8', 'int4'] as const) {
      test(`${format} weights are the dequantized weights`, (t) => {
        withModelFolder(null, (folder) => {
          writeDequantized(pack, folder, format);
          const plain = openEngine(folder, { isa: plainIsa, weightDtype: 'f32' }, 32);
          const want = generate(plain, golden.ids, 8, 16);
          plain.close();
          const logits = new Float32Array(golden.logits.length);
          for (const [position, values] of want.logits) logits.set(values, position * values.length);
          const engine = openPack(pack, { quantization: format, isa: plainIsa, weightDtype: 'f32' });
          const { relativeRms } = errors(generate(engine, golden.ids, 8, 16), { ...golden, logits } satisfies Golden);
          engine.close();
          t.diagnostic(`relative rms ${relativeRms.toExponential(2)}`);
          assert.ok(relativeRms <= sameWeights, `relative rms ${relativeRms}`);
        });
      });

      for (const isa of isas) {
        test(`${format} weights on ${isa} stay within their bound, and chunks change no bit`, (t) => {
          const engine = openPack(pack, { quantization: format, isa });
          const run = generate(engine, golden.ids, 32, 16);
          const chunks = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16, chunk: 7, runAhead: true });
          assert.deepEqual(chunks.tokens, run.tokens);
          assert.deepEqual(chunks.logprobs, run.logprobs);
          for (const [position, values] of chunks.logits) assert.deepEqual(values, run.logits.get(position));
          const { relativeRms } = errors(run, golden);
          const same = run.tokens.filter((token, i) => token === golden.greedyIds[i]).length;
          t.diagnostic(`relative rms ${relativeRms.toExponential(2)}, ${same} of 32 greedy tokens`);
          if (hasExperts(pack)) {
            const median = medianError(run, golden);
            t.diagnostic(`of the position in the middle ${median.toExponential(2)}`);
            assert.ok(median <= medianBounds[format], `of the position in the middle ${median}`);
          } else {
            assert.ok(relativeRms <= bounds[format], `relative rms ${relativeRms}`);
          }
          engine.close();
        });
      }
    }
  });
}
