/** What the tests of the engine share: a golden pack, a prompt for it, and the plan that fills a slot with the prompt. */
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import { blockSets, fixture, openEngine } from '../../helpers/native/native-engine.js';
import type { PlanSpec } from '../../helpers/native/plan.js';

export const pack = fixture('golden', 'llama3.1-gqa');
export const vocab = 320;
export const open = (options: Partial<EngineOptions> = {}, numBlocks = 64): NativeEngine => openEngine(pack, options, numBlocks);
export const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % vocab);
export const prefill = (slot: number, firstBlock: number, tokens: readonly number[] = prompt): PlanSpec => ({
  newSlots: [{ slot, tokens }],
  blockSets: blockSets(slot, firstBlock, 4),
  rows: [{ slot, start: 0, count: tokens.length }],
  samples: [{ row: 0, slot }],
});
