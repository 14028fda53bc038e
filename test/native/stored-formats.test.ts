/**
 * Golden packs of checkpoints that are quantized already, of every safetensors format, against the logits of the dequantized weights.
 * Widened to float32 they are those weights, and must agree as closely as any model does.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { loadAddon } from '../../native/index.js';
import { generate, nmse, openPack, readGolden } from '../helpers/native/golden.js';

/** Seen: 1e-14 to 4e-12. */
const sameWeights = 1e-8;

// biome-ignore format: one line a pack
export const storedPacks = [
  'quant-fp8-ct-tensor',
  'quant-fp8-ct-channel',
  'quant-fp8-static',
  'quant-fp8-block',
  'quant-fp8-fbgemm',
  'quant-gptq-int4-sym',
  'quant-gptq-int4-act',
  'quant-gptq-int4-v2',
  'quant-gptq-int8',
  'quant-awq-int4',
  'quant-ct-w4a16',
  'quant-ct-w4a16-asym',
  'quant-ct-w8a8-int8',
  'quant-ct-mxfp4',
  'quant-ct-nvfp4',
  'quant-ct-mixed',
];

const { usableIsas } = loadAddon().systemInfo();

for (const pack of storedPacks) {
  describe(pack, () => {
    const golden = readGolden(pack);
    for (const isa of [usableIsas[0] ?? 'reference', 'reference']) {
      test(`widened to float32 on ${isa} it is the model that was quantized`, (t) => {
        const engine = openPack(pack, { isa, weightDtype: 'f32' });
        const run = generate(engine, golden.ids, 32, 16);
        engine.close();
        const error = nmse(run, golden);
        t.diagnostic(`nmse ${error.toExponential(2)}`);
        assert.ok(error <= sameWeights, `nmse ${error}`);
        assert.deepEqual(run.tokens, golden.greedyIds);
      });
    }
  });
}
