/**
 * Step plans of a benchmark: a batch of equal prompts in one step or a few, then one token a sequence and step, greedy, nothing reported
 * but the tokens. Each sequence has blocks of its own in order. Layout: actors/messages/step.ts. Pure.
 */
import { PlanBuilder } from '../../../actors/messages/plan-builder.js';
import { defaultSampling, packSamplingRow } from '../../../actors/messages/sampling.js';
import type { SlotLists } from '../../../actors/messages/step.js';

export interface BatchShape {
  readonly batch: number;
  /** Tokens of each prompt. */
  readonly length: number;
  /** Tokens that follow, which need blocks too. */
  readonly steps: number;
  readonly blockSize: number;
  /** Sequences use the places 0, 1, .. of so many by turns; 0: none uses an adapter. */
  readonly adapters?: number;
}

/** Greedy, and nothing else asked for. */
const samplingRow = packSamplingRow({ ...defaultSampling, temperature: 0 }, { seedLo: 0, seedHi: 0, topLogprobs: -1, promptLogprobs: -1 });
const noLists: SlotLists = { bias: [], masked: [] };

/** Blocks of all sequences. */
export function blocksOf(shape: BatchShape): number {
  return shape.batch * Math.ceil((shape.length + shape.steps) / shape.blockSize);
}

/** Fills the slots 0..batch-1 with prompts of ids below `vocabSize` and runs nothing. Frees the `inUse` first slots before. */
export function admissionPlan(shape: BatchShape, vocabSize: number, inUse: number): Uint8Array {
  const plan = new PlanBuilder(0);
  for (let slot = 0; slot < inUse; slot++) plan.free(slot);
  const promptLen = shape.length;
  const perSlot = blocksOf(shape) / shape.batch;
  for (let slot = 0; slot < shape.batch; slot++) {
    const tokens = Int32Array.from({ length: promptLen }, (_, i) => (slot * 7919 + i * 104_729 + 1) % vocabSize);
    const adapter = shape.adapters ? { adapter: slot % shape.adapters } : {};
    plan.newSlot({ slot, forkOf: -1, promptLen, tokens, samplingRow, sequenceIndex: 0, lists: noLists, ...adapter });
    for (let index = 0; index < perSlot; index++) plan.blockSet(slot, index, slot * perSlot + index);
  }
  return plan.finish(0, 1);
}

/** Puts the adapter of this number into the places 0..places-1. */
export function placementPlan(adapter: number, places: number): Uint8Array {
  const plan = new PlanBuilder(0);
  for (let place = 0; place < places; place++) plan.placeAdapter(place, adapter);
  return plan.finish(0, 1);
}

/** All tokens of the prompts, at most `chunk` a step: the prompts one after the other, cut where a step is full. */
export function prefillPlans(shape: BatchShape, chunk: number): Uint8Array[] {
  const steps: Row[][] = [];
  const total = shape.batch * shape.length;
  for (let at = 0; at < total; ) {
    const rows: Row[] = [];
    const end = Math.min(at + chunk, total);
    while (at < end) {
      const start = at % shape.length;
      const count = Math.min(shape.length - start, end - at);
      rows.push({ slot: Math.floor(at / shape.length), start, count, sampled: start + count === shape.length });
      at += count;
    }
    steps.push(rows);
  }
  return steps.map(rowsPlan);
}

/** One more token of each sequence, the one at `position`. */
export function decodePlan(shape: BatchShape, position: number): Uint8Array {
  return rowsPlan(Array.from({ length: shape.batch }, (_, slot) => ({ slot, start: position, count: 1, sampled: true })));
}

interface Row {
  readonly slot: number;
  readonly start: number;
  readonly count: number;
  /** Whether its last token is followed by a sample. */
  readonly sampled: boolean;
}

function rowsPlan(rows: readonly Row[]): Uint8Array {
  const plan = new PlanBuilder(0);
  for (const [row, { slot, start, count, sampled }] of rows.entries()) {
    plan.row(slot, start, count, 0);
    if (sampled) plan.sample(row, slot, 1);
  }
  return plan.finish(0, 1);
}
