/**
 * Makes step plan bodies and reads result bodies for tests that drive the native engine without a scheduler. It writes what it is told,
 * also nonsense, so that tests can make malformed plans; layout and meaning: actors/messages/step.ts.
 */
import { PlanBuilder } from '../../../actors/messages/plan-builder.js';
import { defaultSampling, packSamplingRow, SAMPLING_ROW, samplingParams } from '../../../actors/messages/sampling.js';
import {
  LAYOUT_VERSION,
  RESULT,
  RESULT_LOGITS,
  RESULT_POOLED,
  RESULT_PROMPT,
  RESULT_SAMPLE,
  RESULT_TOP,
} from '../../../actors/messages/step.js';

/** Words of the sampling row that a test sets; the others are greedy decoding without logprobs. */
export type SamplingWords = Partial<Record<Exclude<keyof typeof SAMPLING_ROW, 'words'>, number>>;

export interface NewSlotSpec {
  readonly slot: number;
  readonly tokens?: readonly number[];
  readonly forkOf?: number;
  /** All of `tokens` when absent. */
  readonly promptLen?: number;
  readonly sampling?: SamplingWords;
  /** The place of its adapter; none when absent. */
  readonly adapter?: number;
  readonly bias?: readonly (readonly [id: number, value: number])[];
  readonly masked?: readonly number[];
}

export interface PlanSpec {
  readonly step?: number;
  readonly epoch?: number;
  /** As in PLAN; 1 when absent, which two steps in flight allow always. */
  readonly unread?: number;
  readonly freed?: readonly number[];
  readonly adapters?: readonly { place: number; adapter: number }[];
  readonly newSlots?: readonly NewSlotSpec[];
  readonly blockSets?: readonly { slot: number; index: number; block: number }[];
  readonly swapOuts?: readonly { src: number; dst: number }[];
  readonly copies?: readonly { src: number; dst: number }[];
  readonly swapIns?: readonly { src: number; dst: number }[];
  readonly rows?: readonly { slot: number; start: number; count: number; flags?: number }[];
  readonly samples?: readonly { row: number; slot: number; count?: number; drafts?: number }[];
}

const floatWords = new Set<number>(
  Object.values(samplingParams)
    .filter(({ kind }) => kind === 'float')
    .map(({ word }) => word),
);

function bits(value: number): number {
  return new Int32Array(new Float32Array([value]).buffer)[0] ?? 0;
}

function samplingWords(spec: SamplingWords): Int32Array {
  const row = packSamplingRow({ ...defaultSampling, temperature: 0 }, { seedLo: 0, seedHi: 0, topLogprobs: -1, promptLogprobs: -1 });
  for (const [name, value] of Object.entries(spec)) {
    const word = SAMPLING_ROW[name as keyof SamplingWords]; // proof: the keys of the type
    row[word] = floatWords.has(word) ? bits(value) : value;
  }
  return row;
}

function addSlot(plan: PlanBuilder, spec: NewSlotSpec): void {
  const { slot, tokens = [], forkOf = -1, promptLen = tokens.length, sampling = {}, bias = [], masked = [], adapter } = spec;
  plan.newSlot({
    slot,
    forkOf,
    promptLen,
    tokens: Int32Array.from(tokens),
    samplingRow: samplingWords(sampling),
    sequenceIndex: sampling.sequenceIndex ?? 0,
    ...(adapter === undefined ? {} : { adapter }),
    lists: { bias: bias.flatMap(([id, value]) => [id, bits(value)]), masked },
  });
}

/** The body of a plan. `patch` may spoil its words before they become bytes. */
export function buildPlan(spec: PlanSpec, patch?: (words: number[]) => void): Uint8Array {
  const plan = new PlanBuilder(spec.epoch ?? 0);
  for (const slot of spec.freed ?? []) plan.free(slot);
  for (const { place, adapter } of spec.adapters ?? []) plan.placeAdapter(place, adapter);
  for (const slot of spec.newSlots ?? []) addSlot(plan, slot);
  for (const { slot, index, block } of spec.blockSets ?? []) plan.blockSet(slot, index, block);
  for (const { src, dst } of spec.swapOuts ?? []) plan.swapOut(src, dst);
  for (const { src, dst } of spec.copies ?? []) plan.copy(src, dst);
  for (const { src, dst } of spec.swapIns ?? []) plan.swapIn(src, dst);
  for (const { slot, start, count, flags = 0 } of spec.rows ?? []) plan.row(slot, start, count, flags);
  for (const { row, slot, count = 1, drafts = 0 } of spec.samples ?? []) plan.sample(row, slot, count, drafts);
  const body = plan.finish(spec.step ?? 0, spec.unread ?? 1);
  const words = [...new Int32Array(body.buffer, 0, body.byteLength >> 2)];
  patch?.(words);
  return new Uint8Array(Int32Array.from(words).buffer);
}

export interface Top {
  readonly id: number;
  readonly logprob: number;
}

export interface SampledToken {
  readonly slot: number;
  readonly token: number;
  readonly logprob: number;
  readonly rank: number;
  readonly tops: readonly Top[];
}

export interface StepAnswer {
  readonly step: number;
  readonly epoch: number;
  readonly errorCode: number;
  readonly execUs: number;
  readonly samples: readonly SampledToken[];
  readonly prompts: readonly (SampledToken & { readonly position: number })[];
  readonly pooled: readonly { readonly slot: number; readonly values: Float32Array }[];
  readonly logits: readonly { readonly slot: number; readonly position: number; readonly values: Float32Array }[];
}

/** Reads a result body; throws when its sections do not add up to its length. */
export function readResult(bytes: Uint8Array, vocabSize: number): StepAnswer {
  const copy = bytes.slice();
  const ints = new Int32Array(copy.buffer);
  const floats = new Float32Array(copy.buffer);
  const int = (at: number): number => ints[at] ?? Number.NaN;
  const float = (at: number): number => floats[at] ?? Number.NaN;
  if (int(RESULT.layoutVersion) !== LAYOUT_VERSION) throw new Error(`result of layout ${int(RESULT.layoutVersion)}`);
  const samplesAt: number = RESULT.headerWords;
  const promptsAt = samplesAt + int(RESULT.numSamples) * RESULT_SAMPLE.words;
  const topsAt = promptsAt + int(RESULT.numPromptLogprobs) * RESULT_PROMPT.words;
  let logitsAt = topsAt + int(RESULT.numTops) * RESULT_TOP.words; // behind the pooled states
  const pooled = Array.from({ length: int(RESULT.numPooled) }, () => {
    const at = logitsAt;
    logitsAt += RESULT_POOLED.values + int(at + RESULT_POOLED.width);
    return { slot: int(at + RESULT_POOLED.slot), values: floats.slice(at + RESULT_POOLED.values, logitsAt) };
  });
  const logitWords = RESULT_LOGITS.logits + vocabSize;
  const end = logitsAt + int(RESULT.numLogitRows) * logitWords;
  if (int(RESULT.words) !== ints.length || end !== ints.length) throw new Error(`result of ${ints.length} words, sections end at ${end}`);
  const tops = (offset: number, count: number): Top[] =>
    Array.from({ length: count }, (_, i) => topsAt + (offset + i) * RESULT_TOP.words).map((at) => ({
      id: int(at + RESULT_TOP.id),
      logprob: float(at + RESULT_TOP.logprob),
    }));
  const entry = (at: number, layout: typeof RESULT_SAMPLE | typeof RESULT_PROMPT): SampledToken => ({
    slot: int(at + layout.slot),
    token: int(at + layout.token),
    logprob: float(at + layout.logprob),
    rank: int(at + layout.rank),
    tops: tops(int(at + layout.topOffset), int(at + layout.topCount)),
  });
  const each = (from: number, to: number, words: number): number[] =>
    Array.from({ length: (to - from) / words }, (_, i) => from + i * words);
  return {
    step: int(RESULT.step),
    epoch: int(RESULT.epoch),
    errorCode: int(RESULT.errorCode),
    execUs: int(RESULT.execUs),
    samples: each(samplesAt, promptsAt, RESULT_SAMPLE.words).map((at) => entry(at, RESULT_SAMPLE)),
    prompts: each(promptsAt, topsAt, RESULT_PROMPT.words).map((at) => ({
      ...entry(at, RESULT_PROMPT),
      position: int(at + RESULT_PROMPT.position),
    })),
    pooled,
    logits: each(logitsAt, end, logitWords).map((at) => ({
      slot: int(at + RESULT_LOGITS.slot),
      position: int(at + RESULT_LOGITS.position),
      values: floats.slice(at + RESULT_LOGITS.logits, at + logitWords),
    })),
  };
}
