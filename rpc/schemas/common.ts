/** Pieces shared by the schemas of several methods. */
import { z } from 'zod';
import type { TokenIds } from '../../actors/messages/requests.js';
import type { Config } from '../../config/schema.js';

/** Ranges that come from the configuration. What depends on the model is checked by its tokenizer. */
export interface RequestLimits {
  readonly maxN: number;
  readonly maxBestOf: number;
  /** Stop strings and stop token ids together. */
  readonly maxStop: number;
  readonly maxTop: number;
  readonly maxEmbeddingInputs: number;
  /** A schema, pattern, list of choices or grammar, as JSON text. */
  readonly maxConstraintBytes: number;
}

export function requestLimits({ validation, structured_output }: Config): RequestLimits {
  return {
    maxN: validation.max_n,
    maxBestOf: validation.best_of,
    maxStop: validation.max_stop_sequences,
    maxTop: validation.max_top_n_tokens,
    maxEmbeddingInputs: validation.max_embedding_inputs,
    maxConstraintBytes: structured_output.max_schema_bytes,
  };
}

/** Most tokens that any number in a request may name. */
export const maxTokenCount = 2 ** 24;

export const emptyParams = z.object({});
export const emptyResult = z.object({});

/** An id of a request or a progress token. */
export const idSchema = z.union([z.string(), z.number()], { error: 'must be a string or a number' });

/** Ids of the largest vocabulary that a model may have. */
const numIds = 2 ** 24;
/** Of one token id, for people and as JSON Schema. */
export const idRange = { type: 'integer', minimum: 0, maximum: numIds - 1 };

/** A list of at most `longest` token ids, checked without one issue per element. */
export function tokenIds(longest: number) {
  return z
    .custom<readonly number[]>((value) => Array.isArray(value) && isTokenIds(value) && value.length <= longest, { error: noIds })
    .meta({ type: 'array', items: idRange });
}

/** A list of as many as a message can hold, in one piece where they are many (decode/pack-ids.ts). */
export function manyTokenIds() {
  return z
    .custom<TokenIds>((value) => isTokenIds(value) && value.length <= maxTokenCount, { error: noIds })
    .meta({
      type: 'array',
      items: idRange,
    });
}
const noIds = 'must be a list of token ids';

export function isTokenIds(value: unknown): value is TokenIds {
  if (value instanceof Int32Array) return value.every(isId);
  return Array.isArray(value) && value.every(isId);
}

function isId(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < numIds;
}

/** Token counts and times of an answer. */
export const usageSchema = z.object({
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  total_tokens: z.int(),
  prompt_tokens_details: z.object({ cached_tokens: z.int() }),
  completion_tokens_details: z
    .object({
      reasoning_tokens: z.int().optional().describe('Of a model that marks its reasoning.'),
      accepted_prediction_tokens: z.int().optional().describe('Tokens that were drafted ahead of the model.'),
      rejected_prediction_tokens: z.int().optional().describe('Drafts that the model did not agree with.'),
    })
    .optional(),
  ttft_s: z.number().describe('Seconds from arrival to the first token.'),
  tpot_s: z.number().describe('Seconds per token after the first.'),
  latency_s: z.number().describe('Seconds from arrival to the end.'),
  queue_s: z.number().describe('Seconds before the first step.'),
});
export type Usage = z.output<typeof usageSchema>;

/** Entries of prompt_logprobs: null for the first token, else token id -> entry. */
export const promptLogprobsSchema = z.array(
  z.record(z.string(), z.object({ logprob: z.number(), rank: z.int(), decoded_token: z.string() })).nullable(),
);
