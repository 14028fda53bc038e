/**
 * Fields that chat and text completions share: sampling, ending, what to report, streaming. Every number has a minimum and a maximum;
 * rules between fields are in rpc/generation/params.ts, because some depend on the model's defaults.
 */
import { z } from 'zod';
import { maxTokenCount, type RequestLimits, tokenIds } from './common.js';
import { constraintFields } from './constraint.js';
import { recordOf } from './first-wrong.js';
import { samplingFields } from './sampling.js';
import { unsupportedFields } from './unsupported.js';

const maxStopLength = 1024;
const maxBiases = 4096;

/** `true`, or a progress token of the client's choice with credit. */
export const streamSchema = z.union(
  [
    z.boolean(),
    z.object({
      token: z.union([z.string(), z.number()]).describe('Comes back in every $/progress.'),
      credit: z
        .int()
        .min(0)
        .max(2 ** 31)
        .optional()
        .describe('Tokens that may be sent before the next $/credit.'),
    }),
  ],
  { error: 'must be true, false, or {token: string or number, credit?: integer from 0 to 2^31}' },
);

const flag = (doc: string) => z.boolean().nullish().describe(doc);
const count = (min: number, max: number, doc: string) => {
  const range = { error: `must be an integer from ${min} to ${max}` };
  return z.int(range).min(min, range).max(max, range).nullish().describe(doc);
};

const stopString = z.string().min(1, 'must not be empty').max(maxStopLength);

const maxInt32 = 2 ** 31 - 1;

/** `stream` of a method that tells how far it is. */
export const streamField = streamSchema.nullish().describe('Send $/progress notifications while the answer is made.');

/** Fields for z.object. */
export function generationFields(limits: RequestLimits) {
  const { maxN, maxBestOf, maxStop, maxTop } = limits;
  return {
    model: z.string().min(1, 'must not be empty').nullish().describe('A served model, or an adapter of one.'),
    lora: z.string().min(1, 'must not be empty').nullish().describe('An adapter, in place of its name as the model.'),
    stream: streamField,
    stream_options: z
      .looseObject({ include_usage: z.boolean().nullish() })
      .nullish()
      .describe('include_usage: a last event with the usage, where a stream does not end with the answer.'),
    max_tokens: count(0, maxTokenCount, 'Most tokens of each answer. 0, with echo or prompt_logprobs: the prompt only.'),
    max_completion_tokens: count(0, maxTokenCount, 'Same as max_tokens, and wins over it.'),
    ...samplingFields(),
    seed: z.int({ error: 'must be an integer that a double holds exactly' }).nullish().describe('Same seed and request: same tokens.'),
    n: count(1, maxN, 'Answers to give.'),
    best_of: count(1, maxBestOf, 'Answers to make; the n with the highest cumulative log-probability are given.'),
    stop: z
      .union([stopString, z.array(stopString).max(maxStop)], {
        error: `must be a string or a list of at most ${maxStop} strings, none empty or longer than ${maxStopLength}`,
      })
      .nullish()
      .describe('Text that ends the answer.'),
    stop_token_ids: tokenIds(maxStop).nullish().describe('Tokens that end the answer.'),
    include_stop_str_in_output: flag('Keep the stop string in the answer.'),
    ignore_eos: flag('Go on after the end-of-sequence token.'),
    skip_special_tokens: flag('Leave special tokens out of the text; true by default.'),
    logit_bias: recordOf(
      z.number({ error: 'must be a number from -100 to 100' }).min(-100, 'must be at least -100').max(100, 'must be at most 100'),
      { most: maxBiases, names: { form: /^\d{1,9}$/, else: 'must be a token id' } },
    )
      .nullish()
      .describe('Token id -> number added to its logit.'),
    prompt_logprobs: count(0, maxTop, 'Report log-probabilities of the prompt, with this many alternatives.'),
    priority: z.int().min(-maxInt32).max(maxInt32).nullish().describe('Smaller runs first when the policy is priority.'),
    truncate_prompt_tokens: count(1, maxTokenCount, 'Keep only the last so many tokens of the prompt.'),
    return_token_ids: flag('Report the token ids of prompt and answer.'),
    ...constraintFields(limits),
    user: z.string().nullish().describe('Accepted and not used.'),
    ...unsupportedFields,
  };
}

/** What these fields are after parsing. */
export type GenerationBody = z.output<z.ZodObject<ReturnType<typeof generationFields>>>;
