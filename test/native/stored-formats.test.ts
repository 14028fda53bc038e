/**
 * Golden packs of checkpoints that are quantized already, of every safetensors format, against the logits of the dequantized weights.
 * Widened to float32 they are those weights, and must agree as closely as any model does.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { loadAddon } from '../../native/index.js';
import { type Golden, generate, hasExperts, medianError, nmse, openPack, readGolden, storedPacks } from '../helpers/native/golden.js';
import { fixture } from '../helpers/native/native-engine.js';
import { roundsActivations } from '../helpers/native/op-table.js';

/** Seen: 1e-14 to 4e-12. */
const sameWeights = 1e-8;
/** Codes kept, with scales in f16; widened weights in 16 bits, where there are no codes. */
const keptCodes = 2e-5;
/** Where activations are quantized beside codes; there rounding may turn the greedy tokens of one pack. */
const roundedActivations = 2e-3;
const mostTurned = 1;
const turned = new Set<string>();

const { usableIsas } = loadAddon().systemInfo();
const close = (golden: Golden, tokens: readonly number[]): number => tokens.filter((token, i) => token === golden.greedyIds[i]).length;

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
    for (const isa of usableIsas) {
      test(`as it is kept on ${isa} it is close to that, and chunks change no bit`, (t) => {
        const engine = openPack(pack, { isa });
        const run = generate(engine, golden.ids, 32, 16);
        const chunks = generate(engine, golden.ids, 32, 16, { slot: 1, firstBlock: 16, chunk: 7 });
        const { weightBytes, parameters } = engine.info();
        engine.close();
        const error = roundsActivations(isa) && hasExperts(pack) ? medianError(run, golden) ** 2 : nmse(run, golden);
        t.diagnostic(
          `nmse ${error.toExponential(2)}, ${close(golden, run.tokens)} of 32 tokens, ${(weightBytes / parameters).toFixed(2)} B`,
        );
        assert.ok(error <= (roundsActivations(isa) ? roundedActivations : keptCodes), `nmse ${error}`);
        if (!roundsActivations(isa)) assert.deepEqual(run.tokens, golden.greedyIds);
        else if (!hasExperts(pack) && !isDeepStrictEqual(run.tokens, golden.greedyIds)) turned.add(pack);
        assert.deepEqual(chunks.tokens, run.tokens);
        for (const [position, values] of chunks.logits) assert.deepEqual(values, run.logits.get(position));
      });
    }
  });
}

test('quantized activations turn the greedy tokens of one of these packs at most', () =>
  assert.ok(turned.size <= mostTurned, [...turned].join()));

test('a configuration that is given as text says as much of stored weights as the file does', () => {
  for (const pack of ['quant-fp8-block', 'quant-gptq-int4-sym', 'quant-ct-w4a16']) {
    const golden = readGolden(pack);
    const engine = openPack(pack, { weightDtype: 'f32', modelConfig: readFileSync(fixture('golden', pack, 'config.json'), 'utf8') });
    assert.deepEqual(generate(engine, golden.ids, 32, 16).tokens, golden.greedyIds, pack);
    engine.close();
  }
});
