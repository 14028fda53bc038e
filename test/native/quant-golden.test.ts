/**
 * Tiny checkpoints of seven architectures with weights quantized while loading. First against the same engine with the dequantized
 * weights in float32, which must agree closely: what the quantized products add of their own. Then against the float32 logits of
 * transformers: what the formats cost on these models. And the batch invariance.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { loadAddon } from '../../native/index.js';
import { errors, type Golden, generate, hasExperts, medianError, openPack, packs, readGolden } from '../helpers/native/golden.js';
import { fixture, openEngine } from '../helpers/native/native-engine.js';
import { roundsActivations } from '../helpers/native/op-table.js';
import { withModelFolder } from '../helpers/native/tiny-model.js';
import { writeDequantized } from '../helpers/quantized/dequantized.js';

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

for (const pack of packs) {
  describe(pack, () => {
    const golden = readGolden(pack);

    for (const format of ['int8', 'int4'] as const) {
      test(`${format} weights are the dequantized weights`, (t) => {
        withModelFolder(null, (folder) => {
          writeDequantized(fixture('golden', pack), folder, format);
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
