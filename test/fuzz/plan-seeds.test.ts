import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { answer, fixture, openEngine } from '../helpers/native/native-engine.js';
import { buildPlan } from '../helpers/native/plan.js';
import { planSeeds, seedBytes, seedLimits } from './plan-seeds.js';

describe('what the fuzzer of step plans begins with is what an engine runs', () => {
  const { maxSlots, maxModelLen, blockSize, maxBatchTokens, numBlocks, numSwapBlocks, maxDrafts, adapterPlaces, numAdapters } = seedLimits;
  const engine = openEngine(
    fixture('golden', 'llama3.1-gqa'),
    {
      ...{ maxSlots, maxModelLen, blockSize, maxBatchTokens, adapters: { places: adapterPlaces, maxRank: 64 } },
      drafts: { method: 'ngram', maxTokens: maxDrafts, ngramMin: 1, ngramMax: 4 },
    },
    numBlocks,
    numSwapBlocks,
  );
  for (let id = 0; id < numAdapters; id++) engine.loadAdapter?.(id, fixture('golden', 'lora', 'a'));
  after(() => engine.close());

  for (const [name, plans] of Object.entries(planSeeds)) {
    test(name, () => {
      const held = new Set<number>();
      let bytes = 0;
      for (const [step, plan] of plans.entries()) {
        for (const { slot } of plan.newSlots ?? []) held.add(slot);
        for (const slot of plan.freed ?? []) held.delete(slot);
        const body = buildPlan({ ...plan, step });
        bytes += body.byteLength;
        // As late as an engine may, so that lengths are ranges.
        if (engine.pending() === 2) assert.equal(answer(engine).errorCode, 0);
        engine.submit(body);
      }
      while (engine.pending() > 0) assert.equal(answer(engine).errorCode, 0);
      engine.submit(buildPlan({ freed: [...held] }));
      answer(engine);
      assert.equal(seedBytes(plans).byteLength, bytes);
    });
  }
});
