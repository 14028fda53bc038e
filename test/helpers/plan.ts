/**
 * Makes step plan bodies and reads result bodies for tests that drive the native engine without a scheduler. It writes what it is told,
 * also nonsense, so that tests can make malformed plans; layout and meaning: actors/messages/step.ts.
 */
import {
  BLOCK_SET,
  COPY,
  LAYOUT_VERSION,
  NEW_SLOT,
  PLAN,
  RESULT,
  RESULT_LOGITS,
  RESULT_PROMPT,
  RESULT_SAMPLE,
  RESULT_TOP,
  ROW,
  SAMPLE,
  SAMPLING_ROW,
} from '../../actors/messages/step.js';

/** Words of the sampling row that a test sets; the others are greedy decoding without logprobs. */
export type SamplingWords = Partial<Record<Exclude<keyof typeof SAMPLING_ROW, 'words'>, number>>;

export interface NewSlotSpec {
  readonly slot: number;
  readonly tokens?: readonly number[];
  readonly forkOf?: number;
  /** All of `tokens` when absent. */
  readonly promptLen?: number;
  readonly sampling?: SamplingWords;
  readonly bias?: readonly (readonly [id: number, value: number])[];
  readonly masked?: readonly number[];
}

export interface PlanSpec {
  readonly step?: number;
  readonly epoch?: number;
  readonly freed?: readonly number[];
  readonly newSlots?: readonly NewSlotSpec[];
  readonly blockSets?: readonly { slot: number; index: number; block: number }[];
  readonly swapOuts?: readonly { src: number; dst: number }[];
  readonly copies?: readonly { src: number; dst: number }[];
  readonly swapIns?: readonly { src: number; dst: number }[];
  readonly rows?: readonly { slot: number; start: number; count: number; flags?: number }[];
  readonly samples?: readonly { row: number; slot: number }[];
}

const floatWords = new Set([
  'temperature',
  'topP',
  'minP',
  'typicalP',
  'repetitionPenalty',
  'frequencyPenalty',
  'presencePenalty',
] satisfies (keyof SamplingWords)[]);

const greedy: SamplingWords = { topP: 1, typicalP: 1, repetitionPenalty: 1, topLogprobs: -1, promptLogprobs: -1 };

function bits(value: number): number {
  return new Int32Array(new Float32Array([value]).buffer)[0] ?? 0;
}

function samplingWords(spec: SamplingWords): number[] {
  const row = new Array<number>(SAMPLING_ROW.words).fill(0);
  for (const [name, value] of Object.entries({ ...greedy, ...spec })) {
    row[SAMPLING_ROW[name as keyof SamplingWords]] = (floatWords as Set<string>).has(name) ? bits(value) : value;
  }
  return row;
}

/** The body of a plan. `patch` may spoil its words before they become bytes. */
export function buildPlan(spec: PlanSpec, patch?: (words: number[]) => void): Uint8Array {
  const rows = spec.rows ?? [];
  const words = new Array<number>(PLAN.headerWords).fill(0);
  words.push(...(spec.freed ?? []));
  for (const n of spec.newSlots ?? []) {
    const fixed = new Array<number>(NEW_SLOT.samplingRow).fill(0);
    fixed[NEW_SLOT.slot] = n.slot;
    fixed[NEW_SLOT.forkOf] = n.forkOf ?? -1;
    fixed[NEW_SLOT.numTokens] = n.tokens?.length ?? 0;
    fixed[NEW_SLOT.promptLen] = n.promptLen ?? n.tokens?.length ?? 0;
    fixed[NEW_SLOT.numBias] = n.bias?.length ?? 0;
    fixed[NEW_SLOT.numMasked] = n.masked?.length ?? 0;
    words.push(...fixed, ...samplingWords(n.sampling ?? {}), ...(n.tokens ?? []));
    words.push(...(n.bias ?? []).flatMap(([id, value]) => [id, bits(value)]), ...(n.masked ?? []));
  }
  const columns = <K extends string>(
    layout: Readonly<Record<K | 'words', number>>,
    entry: Readonly<Record<K, number>>,
    keys: readonly K[],
  ) => {
    const out = new Array<number>(layout.words).fill(0);
    for (const key of keys) out[layout[key]] = entry[key];
    return out;
  };
  for (const b of spec.blockSets ?? []) words.push(...columns(BLOCK_SET, b, ['slot', 'index', 'block']));
  for (const pairs of [spec.swapOuts, spec.copies, spec.swapIns]) {
    for (const c of pairs ?? []) words.push(...columns(COPY, c, ['src', 'dst']));
  }
  for (const r of rows) words.push(...columns(ROW, { flags: 0, ...r }, ['slot', 'start', 'count', 'flags']));
  for (const s of spec.samples ?? []) words.push(...columns(SAMPLE, s, ['row', 'slot']));

  words[PLAN.layoutVersion] = LAYOUT_VERSION;
  words[PLAN.step] = spec.step ?? 0;
  words[PLAN.epoch] = spec.epoch ?? 0;
  words[PLAN.numFreed] = spec.freed?.length ?? 0;
  words[PLAN.numNewSlots] = spec.newSlots?.length ?? 0;
  words[PLAN.numBlockSets] = spec.blockSets?.length ?? 0;
  words[PLAN.numCopies] = spec.copies?.length ?? 0;
  words[PLAN.numSwapOuts] = spec.swapOuts?.length ?? 0;
  words[PLAN.numSwapIns] = spec.swapIns?.length ?? 0;
  words[PLAN.numRows] = rows.length;
  words[PLAN.numSamples] = spec.samples?.length ?? 0;
  words[PLAN.numTokens] = rows.reduce((sum, r) => sum + r.count, 0);
  words[PLAN.words] = words.length;
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
  const logitsAt = topsAt + int(RESULT.numTops) * RESULT_TOP.words;
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
    logits: each(logitsAt, end, logitWords).map((at) => ({
      slot: int(at + RESULT_LOGITS.slot),
      position: int(at + RESULT_LOGITS.position),
      values: floats.slice(at + RESULT_LOGITS.logits, at + logitWords),
    })),
  };
}
