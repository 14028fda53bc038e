/** chat.completions.create: body, answer, and the delta of its stream, in OpenAI's shapes. */
import { z } from 'zod';
import { promptLogprobsSchema, type RequestLimits, usageSchema } from './common.js';
import { generationFields } from './generation.js';
import { messagesSchema, templateArgsSchema, toolsSchema } from './messages.js';

export function chatBody(limits: RequestLimits) {
  return z.object({
    messages: messagesSchema,
    ...generationFields(limits),
    logprobs: z.boolean().nullish().describe('Report the log-probability of each token.'),
    top_logprobs: z.int().min(0).max(limits.maxTop).nullish().describe('Alternatives to report for each token; needs logprobs.'),
    tools: toolsSchema.nullish(),
    tool_choice: z
      .union([z.enum(['none', 'auto', 'required']), z.looseObject({ type: z.literal('function') })], {
        error: 'must be "none", "auto", "required" or {"type": "function", ...}',
      })
      .nullish(),
    parallel_tool_calls: z.boolean().nullish().describe('Accepted; an answer holds one call at most.'),
    chat_template_kwargs: templateArgsSchema.nullish(),
    add_generation_prompt: z.boolean().nullish().describe('Open the answer in the template; true by default.'),
  });
}
export type ChatBody = z.output<ReturnType<typeof chatBody>>;

const logprobEntry = z.object({ token: z.string(), logprob: z.number(), bytes: z.array(z.int()).nullable() });
const chatLogprobsSchema = z.object({ content: z.array(logprobEntry.extend({ top_logprobs: z.array(logprobEntry) })) });

const toolCallSchema = z.object({
  id: z.string(),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string().describe('JSON text.') }),
});

const chatFinishSchema = z.enum(['stop', 'length', 'tool_calls', 'abort']);

export const chatCompletionSchema = z.object({
  id: z.string(),
  object: z.literal('chat.completion'),
  created: z.int().describe('Seconds since the epoch.'),
  model: z.string(),
  choices: z.array(
    z.object({
      index: z.int(),
      message: z.object({
        role: z.literal('assistant'),
        content: z.string().nullable().optional().describe('Absent in a streamed answer.'),
        tool_calls: z.array(toolCallSchema).optional(),
      }),
      logprobs: chatLogprobsSchema.nullable(),
      finish_reason: chatFinishSchema,
      stop_reason: z.union([z.string(), z.int()]).optional(),
      token_ids: z.array(z.int()).optional(),
    }),
  ),
  usage: usageSchema,
  prompt_token_ids: z.array(z.int()).optional(),
  prompt_logprobs: promptLogprobsSchema.optional(),
});
export type ChatCompletion = z.output<typeof chatCompletionSchema>;

/** One element of `choices` in a delta event. */
export const chatDeltaSchema = z.object({
  index: z.int(),
  delta: z.object({
    role: z.literal('assistant').optional(),
    content: z.string().optional(),
    tool_calls: z.array(toolCallSchema.extend({ index: z.int() })).optional(),
  }),
  logprobs: chatLogprobsSchema.optional(),
  finish_reason: chatFinishSchema.nullable(),
  stop_reason: z.union([z.string(), z.int()]).optional(),
  token_ids: z.array(z.int()).optional(),
});
export type ChatDelta = z.output<typeof chatDeltaSchema>;
