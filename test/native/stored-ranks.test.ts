/**
 * Models that are quantized in their files, split over ranks: cuts that fall between blocks keep the codes, others are widened, and each way
 * the logits stay those of the dequantized weights.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { loadAddon } from '../../native/index.js';
import { ggufModelConfig } from '../helpers/native/gguf.js';
import { generate, ggufPacks, hasExperts, medianError, nmse, openPackRanks, readGolden, storedPacks } from '../helpers/native/golden.js';
import { fixture, openRanks } from '../helpers/native/native-engine.js';
import { roundsActivations } from '../helpers/native/op-table.js';

const bounds = { plain: 2e-5, rounded: 2e-3 } as const;
const { usableIsas } = loadAddon().systemInfo();
const plainIsa = usableIsas.find((isa) => !roundsActivations(isa)) ?? 'reference';
const isas = new Set([usableIsas[0] ?? 'reference', plainIsa]);

function openSplit(pack: string, ranks: number, isa: string, expertParallel: boolean) {
  if (!ggufPacks.includes(pack)) return openPackRanks(pack, ranks, { isa, expertParallel });
  const path = fixture('golden', pack, 'model.gguf');
  return openRanks(path, ranks, { isa, modelConfig: ggufModelConfig(path) }, 32, 32);
}

describe('a quantized model split over ranks', () => {
  for (const pack of [...storedPacks, ...ggufPacks]) {
    const golden = readGolden(pack);
    for (const isa of isas) {
      test(`${pack} on ${isa} is the model that was quantized`, (t) => {
        const ways = [2, 4].flatMap((ranks) => (hasExperts(pack) ? [false, true] : [false]).map((whole) => [ranks, whole] as const));
        for (const [ranks, wholeExperts] of ways) {
          const engine = openSplit(pack, ranks, isa, wholeExperts);
          const run = generate(engine, golden.ids, 32, 16);
          engine.close();
          const error = roundsActivations(isa) && hasExperts(pack) ? medianError(run, golden) ** 2 : nmse(run, golden);
          t.diagnostic(`${ranks} ranks${wholeExperts ? ', experts whole' : ''}: nmse ${error.toExponential(2)}`);
          assert.ok(error <= (roundsActivations(isa) ? bounds.rounded : bounds.plain), `${ranks} ranks: nmse ${error}`);
          if (!roundsActivations(isa)) assert.deepEqual(run.tokens, golden.greedyIds);
        }
      });
    }
  }
});
