/** POST /v1/messages and /v1/messages/count_tokens: bodies and answers in the shapes of Anthropic's Messages. */
import { z } from 'zod';
import { maxTokenCount, type RequestLimits } from '../../schemas/common.js';
import { listOf } from '../../schemas/first-wrong.js';
import { modelField, sharedFields } from '../chat/fields.js';

const maxMessages = 4096;
const maxTools = 128;

const block = z.looseObject({ type: z.string({ error: 'must be a string' }) }, { error: 'must be a block {type, ...}' });
export const contentSchema = z.union([z.string(), z.array(block)], { error: 'must be a text or a list of blocks' });
export type Block = z.output<typeof block>;

const message = z.looseObject({
  role: z.enum(['user', 'assistant'], { error: 'must be user or assistant; what a system says goes into system' }),
  content: contentSchema,
});
export type Message = z.output<typeof message>;

const tool = z.looseObject({
  name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"'),
  type: z.string().nullish().describe('custom, or left out.'),
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown()).nullish(),
  strict: z.boolean().nullish(),
});

/** What the prompt is made of, in both routes. */
const promptFields = {
  model: modelField,
  messages: listOf(message, { least: 1, most: maxMessages, unit: 'message' }),
  system: contentSchema.nullish().describe('A text, or blocks of text.'),
  tools: z.array(tool).max(maxTools).nullish(),
  tool_choice: z
    .looseObject({
      type: z.enum(['auto', 'any', 'tool', 'none'], { error: 'must be auto, any, tool or none' }),
      name: z.string().nullish(),
      disable_parallel_tool_use: z.boolean().nullish(),
    })
    .nullish(),
  thinking: z
    .looseObject({ type: z.enum(['enabled', 'disabled', 'adaptive'], { error: 'must be enabled, disabled or adaptive' }) })
    .nullish()
    .describe('enable_thinking of the template; a budget is not enforced.'),
  output_config: z
    .looseObject({ effort: z.string().max(32).nullish(), format: z.looseObject({ type: z.string() }).nullish() })
    .nullish()
    .describe('effort: reasoning_effort of the template; format: {"type": "json_schema", "schema": ...}.'),
  mcp_servers: z.array(z.unknown()).nullish().describe('Refused unless empty.'),
  container: z.unknown().optional().describe('Refused.'),
};

export function countBody(limits: RequestLimits) {
  const { chat_template_kwargs } = sharedFields(limits);
  return z.object({ ...promptFields, chat_template_kwargs });
}
export type CountBody = z.output<ReturnType<typeof countBody>>;

export function messagesBody(limits: RequestLimits) {
  return z.object({
    ...promptFields,
    max_tokens: z.int().min(1).max(maxTokenCount),
    stop_sequences: z.array(z.string().min(1, 'must not be empty')).nullish(),
    stream: z.boolean().nullish().describe('Answer with server-sent events.'),
    metadata: z.looseObject({}).nullish().describe('Accepted and not used.'),
    service_tier: z.string().nullish().describe('Accepted and not used.'),
    ...sharedFields(limits),
  });
}
export type MessagesBody = z.output<ReturnType<typeof messagesBody>>;

const usageSchema = z.object({
  input_tokens: z.int().describe('Without those that came from the prefix cache.'),
  cache_read_input_tokens: z.int(),
  cache_creation_input_tokens: z.int(),
  output_tokens: z.int(),
});
export type MessageUsage = z.output<typeof usageSchema>;

const answerBlock = z.discriminatedUnion('type', [
  z.object({ type: z.literal('thinking'), thinking: z.string(), signature: z.literal('') }),
  z.object({ type: z.literal('text'), text: z.string(), citations: z.null() }),
  z.object({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: z.record(z.string(), z.unknown()) }),
]);
export type AnswerBlock = z.output<typeof answerBlock>;

const stopReason = z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use']);
export type StopReason = z.output<typeof stopReason>;

export const messageSchema = z.object({
  id: z.string(),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: z.string(),
  content: z.array(answerBlock),
  stop_reason: stopReason.nullable(),
  stop_sequence: z.string().nullable(),
  usage: usageSchema,
});
export type MessageObject = z.output<typeof messageSchema>;

/** Every event has a type; what else it has depends on that. */
export const messageEvent = z.looseObject({
  type: z.enum([
    'message_start',
    'content_block_start',
    'content_block_delta',
    'content_block_stop',
    'message_delta',
    'message_stop',
    'ping',
    'error',
  ]),
});

export const countSchema = z.object({ input_tokens: z.int() });
