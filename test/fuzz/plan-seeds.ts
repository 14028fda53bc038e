/**
 * What the fuzzer of step plans (plan_fuzz.cpp) begins with: short lives of sequences, each as plans one after the other, within the limits
 * that the fuzzer gives the checker. Made when the fuzzer starts, so that they are of the layout of the day.
 */
import { ROW_FLAG } from '../../actors/messages/step.js';
import { buildPlan, type PlanSpec } from '../helpers/native/plan.js';

/** The limits of plan_fuzz.cpp. */
export const seedLimits = {
  maxSlots: 4,
  maxModelLen: 64,
  blockSize: 16,
  numBlocks: 12,
  numSwapBlocks: 6,
  maxBatchTokens: 48,
  vocabSize: 100,
  maxDrafts: 3,
  adapterPlaces: 2,
  /** Those of lower numbers are loaded. */
  numAdapters: 3,
} as const;

const prompt = Array.from({ length: 20 }, (_, i) => (i * 37) % seedLimits.vocabSize);
const table = (slot: number, first: number, count: number) =>
  Array.from({ length: count }, (_, index) => ({ slot, index, block: first + index }));
const began: PlanSpec = {
  newSlots: [{ slot: 0, tokens: prompt }],
  blockSets: table(0, 0, 2),
  rows: [{ slot: 0, start: 0, count: prompt.length }],
  samples: [{ row: 0, slot: 0 }],
};
const decode = (start: number): PlanSpec => ({ rows: [{ slot: 0, start, count: 1 }], samples: [{ row: 0, slot: 0 }] });

/** By name, the plans of each in their order. */
export const planSeeds: Readonly<Record<string, readonly PlanSpec[]>> = {
  'a-prompt-and-tokens': [began, decode(20), decode(21), { freed: [0] }],
  'chunks-and-lists': [
    {
      newSlots: [{ slot: 2, tokens: prompt, bias: [[3, 1.5]], masked: [7, 8], sampling: { promptLogprobs: 2, topLogprobs: 1 } }],
      blockSets: table(2, 4, 2),
      rows: [{ slot: 2, start: 0, count: 16, flags: ROW_FLAG.promptLogprobs | ROW_FLAG.rawLogits }],
    },
    { rows: [{ slot: 2, start: 16, count: 4, flags: ROW_FLAG.promptLogprobs }], samples: [{ row: 0, slot: 2 }] },
  ],
  fork: [
    began,
    {
      newSlots: [{ slot: 1, forkOf: 0, promptLen: prompt.length, sampling: { sequenceIndex: 1 } }],
      blockSets: [
        { slot: 1, index: 0, block: 0 },
        { slot: 1, index: 1, block: 5 },
      ],
      copies: [{ src: 1, dst: 5 }],
      rows: [0, 1].map((slot) => ({ slot, start: 20, count: 1 })),
      samples: [0, 1].map((slot) => ({ row: slot, slot })),
    },
  ],
  swap: [
    began,
    { freed: [0], swapOuts: [0, 1].map((src) => ({ src, dst: src + 3 })) },
    {
      newSlots: [{ slot: 3, tokens: prompt }],
      blockSets: table(3, 8, 2),
      swapIns: [0, 1].map((index) => ({ src: index + 3, dst: index + 8 })),
    },
    { rows: [{ slot: 3, start: 19, count: 1 }], samples: [{ row: 0, slot: 3 }] },
  ],
  drafts: [
    { ...began, samples: [{ row: 0, slot: 0, drafts: 2 }] },
    { rows: [{ slot: 0, start: 20, count: 3, flags: ROW_FLAG.fromDevice }], samples: [{ row: 0, slot: 0, count: 3, drafts: 1 }] },
    { rows: [{ slot: 0, start: 23, count: 2, flags: ROW_FLAG.fromDevice }], samples: [{ row: 0, slot: 0, count: 2 }] },
  ],
  adapters: [
    {
      ...began,
      adapters: [
        { place: 0, adapter: 2 },
        { place: 1, adapter: 0 },
      ],
      newSlots: [{ slot: 0, tokens: prompt, adapter: 1 }],
    },
    { ...decode(20), adapters: [{ place: 0, adapter: 1 }] },
  ],
  pooled: [
    {
      newSlots: [{ slot: 0, tokens: prompt }],
      blockSets: table(0, 0, 2),
      rows: [{ slot: 0, start: 0, count: 16, flags: ROW_FLAG.poolSum }],
    },
    { rows: [{ slot: 0, start: 16, count: 4, flags: ROW_FLAG.poolSum | ROW_FLAG.pool }] },
  ],
};

/** The input of the fuzzer that a seed is. */
export function seedBytes(plans: readonly PlanSpec[]): Uint8Array {
  return Buffer.concat(plans.map((plan, step) => buildPlan({ ...plan, step })));
}
