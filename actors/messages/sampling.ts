/**
 * The sampling record of a slot, and one descriptor per parameter that the executor needs: range, default, place in the record.
 * RPC schemas, documentation and packing derive from it; adding a parameter is a word and a line here, a line in
 * native/core/plan/sampling_row.h and the maths in each backend's sampler. Formulas and order are those of vLLM V1 (rpc/README.md, "Sampling").
 */
import { NO_GRAMMAR } from './constraint.js';

/** Places of its words; mirror of native/core/plan/sampling_row.h, a test compares both. */
export const SAMPLING_ROW = {
  seedLo: 0,
  seedHi: 1,
  temperature: 2,
  topP: 3,
  minP: 4,
  typicalP: 5,
  repetitionPenalty: 6,
  frequencyPenalty: 7,
  presencePenalty: 8,
  /** 0 = off. */
  topK: 9,
  minTokens: 10,
  /** -1 = no logprobs, else how many top entries besides the sampled token, 0..20. */
  topLogprobs: 11,
  /** -1 = none, else how many top entries a prompt position, 0..20. */
  promptLogprobs: 12,
  /** Index of the sequence in its request: the second key of its random numbers. */
  sequenceIndex: 13,
  /** 0 = none, else the number of the grammar that every token must keep to. */
  grammar: 14,
  words: 24,
} as const;

export interface SamplingDescriptor {
  readonly word: number;
  readonly kind: 'float' | 'int';
  readonly min: number;
  readonly max: number;
  /** Value when neither the request nor the model's generation_config.json says one. */
  readonly default: number;
  readonly doc: string;
}

export const samplingParams = {
  temperature: { word: SAMPLING_ROW.temperature, kind: 'float', min: 0, max: 2, default: 1, doc: 'Divides the logits; 0 is greedy.' },
  top_p: {
    word: SAMPLING_ROW.topP,
    kind: 'float',
    min: 1e-6,
    max: 1,
    default: 1,
    doc: 'Keep the smallest set of tokens with this much probability.',
  },
  min_p: {
    word: SAMPLING_ROW.minP,
    kind: 'float',
    min: 0,
    max: 1,
    default: 0,
    doc: 'Drop tokens below this share of the best probability.',
  },
  typical_p: {
    word: SAMPLING_ROW.typicalP,
    kind: 'float',
    min: 1e-6,
    max: 1,
    default: 1,
    doc: 'Keep the tokens closest to the expected information, up to this probability.',
  },
  repetition_penalty: {
    word: SAMPLING_ROW.repetitionPenalty,
    kind: 'float',
    min: 0.01,
    max: 2,
    default: 1,
    doc: 'Divides (or multiplies, when negative) the logits of tokens in prompt or answer.',
  },
  frequency_penalty: {
    word: SAMPLING_ROW.frequencyPenalty,
    kind: 'float',
    min: -2,
    max: 2,
    default: 0,
    doc: 'Subtracted from a logit for each time the token is in the answer.',
  },
  presence_penalty: {
    word: SAMPLING_ROW.presencePenalty,
    kind: 'float',
    min: -2,
    max: 2,
    default: 0,
    doc: 'Subtracted from a logit when the token is in the answer.',
  },
  top_k: { word: SAMPLING_ROW.topK, kind: 'int', min: -1, max: 2 ** 30, default: 0, doc: 'Keep the k best tokens; 0 or -1 is off.' },
  min_tokens: {
    word: SAMPLING_ROW.minTokens,
    kind: 'int',
    min: 0,
    max: 2 ** 24,
    default: 0,
    doc: 'Generate at least this many tokens before a stop.',
  },
} as const satisfies Record<string, SamplingDescriptor>;

export type SamplingParamName = keyof typeof samplingParams;
/** All parameters resolved: request, then model defaults, then the table's. */
export type SamplingValues = { readonly [K in SamplingParamName]: number };

/** Of a request that says nothing, where the model recommends nothing. Each but the temperature does nothing. */
export const defaultSampling = Object.fromEntries(Object.entries(samplingParams).map(([name, d]) => [name, d.default])) as SamplingValues; // proof: one entry for each parameter

/** What the row needs besides the parameters of the table. */
export interface SamplingExtras {
  /** 64-bit seed as two unsigned words; drawn at random by the front when the request names none. */
  readonly seedLo: number;
  readonly seedHi: number;
  /** -1 = no logprobs, else 0..20 top entries. */
  readonly topLogprobs: number;
  /** -1 = none, else 0..20 top entries. */
  readonly promptLogprobs: number;
  /** Number of the grammar that the answer keeps to; NO_GRAMMAR when absent. */
  readonly grammar?: number;
}

/** Packs a row of SAMPLING_ROW.words words. Allocates it. `sequenceIndex` is left 0: the scheduler sets it when it forks. */
export function packSamplingRow(values: SamplingValues, extras: SamplingExtras): Int32Array {
  const row = new Int32Array(SAMPLING_ROW.words);
  const floats = new Float32Array(row.buffer);
  for (const name of Object.keys(samplingParams) as SamplingParamName[]) {
    const d: SamplingDescriptor = samplingParams[name];
    if (d.kind === 'float') floats[d.word] = values[name];
    else row[d.word] = values[name];
  }
  if (values.top_k < 0) row[SAMPLING_ROW.topK] = 0;
  row[SAMPLING_ROW.seedLo] = extras.seedLo | 0;
  row[SAMPLING_ROW.seedHi] = extras.seedHi | 0;
  row[SAMPLING_ROW.topLogprobs] = extras.topLogprobs;
  row[SAMPLING_ROW.promptLogprobs] = extras.promptLogprobs;
  row[SAMPLING_ROW.grammar] = extras.grammar ?? NO_GRAMMAR;
  return row;
}
