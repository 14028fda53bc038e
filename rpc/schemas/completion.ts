/** completions.create: body, answer, and the delta of its stream, in OpenAI's shapes. */
import { z } from 'zod';
import { promptLogprobsSchema, type RequestLimits, usageSchema } from './common.js';
import { generationFields } from './generation.js';
import { promptSchema } from './prompt.js';

/** Prompts of one call. */
const maxPrompts = 256;

export function completionBody(limits: RequestLimits) {
  return z.object({
    prompt: promptSchema(maxPrompts),
    ...generationFields(limits),
    logprobs: z.int().min(0).max(limits.maxTop).nullish().describe('Report the log-probability of each token, with so many alternatives.'),
    echo: z.boolean().nullish().describe('Put the prompt in front of the answer.'),
    add_special_tokens: z.boolean().nullish().describe('Encode text prompts with the special tokens of the model; true by default.'),
  });
}

const completionLogprobsSchema = z.object({
  text_offset: z.array(z.int()).describe('In characters (code points).'),
  token_logprobs: z.array(z.number().nullable()),
  tokens: z.array(z.string()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
});

const completionFinishSchema = z.enum(['stop', 'length', 'abort']);

const choice = z.object({
  index: z.int().describe('prompt number * n + answer number.'),
  text: z.string().optional().describe('Absent in a streamed answer.'),
  logprobs: completionLogprobsSchema.nullable(),
  finish_reason: completionFinishSchema,
  stop_reason: z.union([z.string(), z.int()]).optional(),
  token_ids: z.array(z.int()).optional(),
  prompt_token_ids: z.array(z.int()).optional(),
  prompt_logprobs: promptLogprobsSchema.optional(),
});

export const completionSchema = z.object({
  id: z.string(),
  object: z.literal('text_completion'),
  created: z.int().describe('Seconds since the epoch.'),
  model: z.string(),
  choices: z.array(choice),
  usage: usageSchema,
});
export type Completion = z.output<typeof completionSchema>;

/** One element of `choices` in a delta event. */
export const completionDeltaSchema = z.object({
  index: z.int(),
  text: z.string(),
  logprobs: completionLogprobsSchema.optional(),
  finish_reason: completionFinishSchema.nullable(),
  stop_reason: z.union([z.string(), z.int()]).optional(),
  token_ids: z.array(z.int()).optional(),
  prompt_token_ids: z.array(z.int()).optional().describe('Only in server-sent events, before the first token.'),
  prompt_logprobs: promptLogprobsSchema.optional().describe('Only in server-sent events, before the first token; parts to be joined.'),
});
export type CompletionDelta = z.output<typeof completionDeltaSchema>;
