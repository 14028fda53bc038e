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
      .union([z.enum(['none', 'auto', 'required']), z.object({ type: z.literal('function'), function: z.object({ name: z.string() }) })], {
        error: 'must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}',
      })
      .nullish(),
    parallel_tool_calls: z.boolean().nullish().describe('false: of several calls in an answer only the first stays.'),
    reasoning_effort: z
      .enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh'], { error: 'must be none, minimal, low, medium, high or xhigh' })
      .nullish()
      .describe("Handed to the model's template; none also sets its enable_thinking to false."),
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

/** Id, type and name come with the first piece of a call. */
const toolCallDeltaSchema = z.object({
  index: z.int().describe('Number of the call in the answer.'),
  id: z.string().optional(),
  type: z.literal('function').optional(),
  function: z.object({ name: z.string().optional(), arguments: z.string().describe('More of the JSON text.') }),
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
        reasoning_content: z.string().optional().describe('What the model wrote before its answer, where it marks that.'),
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
    reasoning_content: z.string().optional(),
    tool_calls: z.array(toolCallDeltaSchema).optional(),
  }),
  logprobs: chatLogprobsSchema.optional(),
  finish_reason: chatFinishSchema.nullable(),
  stop_reason: z.union([z.string(), z.int()]).optional(),
  token_ids: z.array(z.int()).optional(),
});
export type ChatDelta = z.output<typeof chatDeltaSchema>;
