/**
 * Step plans of a benchmark: a batch of equal prompts in one step or a few, then one token a sequence and step, greedy, nothing reported
 * but the tokens. Each sequence has blocks of its own in order. Layout: actors/messages/step.ts. Pure.
 */
import { BLOCK_SET, LAYOUT_VERSION, NEW_SLOT, PLAN, ROW, SAMPLE, SAMPLING_ROW } from '../../actors/messages/step.js';

export interface BatchShape {
  readonly batch: number;
  /** Tokens of each prompt. */
  readonly length: number;
  /** Tokens that follow, which need blocks too. */
  readonly steps: number;
  readonly blockSize: number;
}

const bits = (value: number): number => new Int32Array(Float32Array.of(value).buffer)[0] ?? 0;

/** Blocks of all sequences. */
export function blocksOf(shape: BatchShape): number {
  return shape.batch * Math.ceil((shape.length + shape.steps) / shape.blockSize);
}

/** Fills the slots 0..batch-1 with prompts of ids below `vocabSize` and runs nothing. Frees the `inUse` first slots before. */
export function admissionPlan(shape: BatchShape, vocabSize: number, inUse: number): Uint8Array {
  const words = Array.from({ length: inUse }, (_, slot) => slot);
  const perSlot = blocksOf(shape) / shape.batch;
  for (let slot = 0; slot < shape.batch; slot++) {
    const fixed = new Array<number>(NEW_SLOT.samplingRow).fill(0);
    fixed[NEW_SLOT.slot] = slot;
    fixed[NEW_SLOT.forkOf] = -1;
    fixed[NEW_SLOT.numTokens] = shape.length;
    fixed[NEW_SLOT.promptLen] = shape.length;
    const sampling = new Array<number>(SAMPLING_ROW.words).fill(0);
    for (const name of ['topP', 'typicalP', 'repetitionPenalty'] as const) sampling[SAMPLING_ROW[name]] = bits(1);
    for (const name of ['topLogprobs', 'promptLogprobs'] as const) sampling[SAMPLING_ROW[name]] = -1;
    words.push(...fixed, ...sampling);
    for (let i = 0; i < shape.length; i++) words.push((slot * 7919 + i * 104_729 + 1) % vocabSize);
  }
  for (let slot = 0; slot < shape.batch; slot++) {
    for (let index = 0; index < perSlot; index++) {
      const set = new Array<number>(BLOCK_SET.words).fill(0);
      set[BLOCK_SET.slot] = slot;
      set[BLOCK_SET.index] = index;
      set[BLOCK_SET.block] = slot * perSlot + index;
      words.push(...set);
    }
  }
  return plan([], { words, freed: inUse, newSlots: shape.batch, blockSets: blocksOf(shape) });
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
  return steps.map((rows) => plan(rows));
}

/** One more token of each sequence, the one at `position`. */
export function decodePlan(shape: BatchShape, position: number): Uint8Array {
  return plan(Array.from({ length: shape.batch }, (_, slot) => ({ slot, start: position, count: 1, sampled: true })));
}

interface Row {
  readonly slot: number;
  readonly start: number;
  readonly count: number;
  /** Whether its last token is followed by a sample. */
  readonly sampled: boolean;
}

/** Sections of a plan that come before its rows. */
interface Before {
  readonly words: readonly number[];
  readonly freed: number;
  readonly newSlots: number;
  readonly blockSets: number;
}

const nothing: Before = { words: [], freed: 0, newSlots: 0, blockSets: 0 };

function plan(rows: readonly Row[], before: Before = nothing): Uint8Array {
  const rowWords = rows.flatMap(({ slot, start, count }) => {
    const row = new Array<number>(ROW.words).fill(0);
    row[ROW.slot] = slot;
    row[ROW.start] = start;
    row[ROW.count] = count;
    return row;
  });
  const samples = rows.flatMap(({ slot, sampled }, row) => {
    if (!sampled) return [];
    const sample = new Array<number>(SAMPLE.words).fill(0);
    sample[SAMPLE.row] = row;
    sample[SAMPLE.slot] = slot;
    return [sample];
  });
  const header = new Array<number>(PLAN.headerWords).fill(0);
  const words = [...header, ...before.words, ...rowWords, ...samples.flat()];
  words[PLAN.layoutVersion] = LAYOUT_VERSION;
  words[PLAN.numFreed] = before.freed;
  words[PLAN.numNewSlots] = before.newSlots;
  words[PLAN.numBlockSets] = before.blockSets;
  words[PLAN.numRows] = rows.length;
  words[PLAN.numSamples] = samples.length;
  words[PLAN.numTokens] = rows.reduce((sum, { count }) => sum + count, 0);
  words[PLAN.words] = words.length;
  return new Uint8Array(Int32Array.from(words).buffer);
}
