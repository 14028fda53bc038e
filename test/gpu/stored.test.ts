/**
 * Checkpoints that are quantized already on CUDA, and models quantized while they are loaded there. Few tokens are multiplied in 16 bits
 * by the weights that the checkpoint stands for; many are quantized too, as the checkpoint's scheme says.
 */
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { describe, test } from 'node:test';
import { errors, generate, nmse, openPack, readGolden, schemeError } from '../helpers/native/golden.js';
import { fixture } from '../helpers/native/native-engine.js';

/** Rounding of activations to bf16 shows 2e-5 to 7e-5. */
const sameWeights = 3e-4;
/** Of what the pack's own scheme of quantizing activations costs. */
const schemeSlack = 2;

/** Of a tied head, which is held beside the table of ids. */
function headBytes(pack: string): number {
  const config = JSON.parse(readFileSync(fixture('golden', pack, 'config.json'), 'utf8')) as Record<string, number | boolean>;
  return config['tie_word_embeddings'] === true ? 2 * Number(config['vocab_size']) * Number(config['hidden_size']) : 0;
}

/** Of the packs with float8 weights, those whose heads the kernels take; the others are in quantized.test.ts. */
for (const pack of ['quant-fp8-block']) {
  describe(pack, () => {
    const golden = readGolden(pack);
    for (const graphSizes of [[], [1, 4]]) {
      test(`is the model that was quantized, and as close as its scheme with many tokens at once${graphSizes.length > 0 ? ', with graphs' : ''}`, (t) => {
        const engine = openPack(pack, { backend: 'cuda', weightDtype: 'auto', kvDtype: 'auto', graphSizes });
        const few = generate(engine, golden.ids, 32, 16, { chunk: 7 });
        const many = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16 });
        const { weightBytes } = engine.info();
        engine.close();
        t.diagnostic(`nmse ${nmse(few, golden).toExponential(2)}, many ${nmse(many, golden).toExponential(2)}, ${weightBytes} B`);
        assert.ok(nmse(few, golden) <= sameWeights, `nmse ${nmse(few, golden)}`);
        assert.ok(nmse(many, golden) <= schemeSlack * schemeError(pack, golden), `nmse of many ${nmse(many, golden)}`);
        assert.deepEqual(few.tokens, golden.greedyIds);
        assert.ok(weightBytes <= 1.03 * statSync(fixture('golden', pack, 'model.safetensors')).size + headBytes(pack), `${weightBytes} B`);
      });
    }
  });
}

/** Relative root mean square error against the weights as they were: these models are random, and have learned to bear nothing. */
const rounded = 0.35;

/** With experts, a rounded score sends a token elsewhere: none of those. */
for (const pack of ['llama2-mha', 'llama3.1-gqa', 'llama3.2-tied', 'mistral-sliding', 'qwen2-bias', 'phi3-fused']) {
  test(`${pack} quantized to fp8 while it is loaded stays within its bound`, (t) => {
    const golden = readGolden(pack);
    const engine = openPack(pack, { backend: 'cuda', weightDtype: 'bf16', kvDtype: 'auto', quantization: 'fp8' });
    for (const way of [{ chunk: 7 }, { slot: 1, firstBlock: 16 }]) {
      const { relativeRms } = errors(generate(engine, golden.ids, 32, 16, way), golden);
      t.diagnostic(`relative rms ${relativeRms.toExponential(2)}`);
      assert.ok(relativeRms <= rounded, `relative rms ${relativeRms}`);
    }
    engine.close();
  });
}
