/** Bodies and answers of /api/chat, /api/generate and /api/embed in Ollama's shapes. */
import { z } from 'zod';
import { listOf } from '../../schemas/first-wrong.js';

const maxMessages = 4096;
const maxTools = 128;

export const modelName = z.string().min(1, 'must not be empty').describe('With or without ":latest".');

const optionsSchema = z
  .looseObject({})
  .nullish()
  .describe(
    'num_predict, temperature, top_k, top_p, min_p, typical_p, repeat_penalty, presence_penalty, frequency_penalty, seed, stop. mirostat and ' +
      'tfs_z are refused; what steers memory and threads (num_ctx, num_gpu, ...) is accepted and not used.',
  );

const common = {
  model: modelName,
  stream: z.boolean().nullish().describe('Lines of JSON; true by default.'),
  format: z
    .union([z.enum(['', 'json']), z.looseObject({})], { error: 'must be "json" or a JSON schema' })
    .nullish()
    .describe('"json", or a JSON schema that the answer is a value of.'),
  options: optionsSchema,
  think: z
    .union([z.boolean(), z.enum(['low', 'medium', 'high'])], { error: 'must be true, false, low, medium or high' })
    .nullish()
    .describe('enable_thinking, or reasoning_effort, of the template.'),
  keep_alive: z.union([z.string(), z.number()]).nullish().describe('0 without a prompt unloads the model; else accepted and not used.'),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
};
const images = z.array(z.unknown()).nullish().describe('Refused: no model here reads them.');

const message = z.looseObject({
  role: z.string(),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  images,
  tool_calls: z
    .array(
      z.looseObject({
        id: z.string().nullish(),
        function: z.looseObject({ name: z.string(), arguments: z.record(z.string(), z.unknown()).nullish() }),
      }),
    )
    .max(maxTools)
    .nullish(),
  tool_name: z.string().nullish(),
  tool_call_id: z.string().nullish(),
});

export const chatBody = z.object({
  ...common,
  messages: listOf(message, { least: 0, most: maxMessages, unit: 'message' }).nullish().describe('None: the model is loaded.'),
  tools: z.array(z.unknown()).max(maxTools).nullish(),
});
export type ChatBody = z.output<typeof chatBody>;

export const generateBody = z.object({
  ...common,
  prompt: z.string().nullish().describe('Empty: the model is loaded.'),
  system: z.string().nullish(),
  raw: z.boolean().nullish().describe('Go on with the prompt as it is, without the template of the model.'),
  images,
  suffix: z.string().nullish().describe('Refused.'),
  template: z.string().nullish().describe("Refused: the model's own is used."),
  context: z.array(z.unknown()).nullish().describe('Refused: send the conversation to /api/chat.'),
});
export type GenerateBody = z.output<typeof generateBody>;

export const embedBody = z.object({
  model: modelName,
  input: z.union([z.string(), z.array(z.string()).min(1)], { error: 'must be a text or a list of texts' }),
  dimensions: z.int().min(1).nullish(),
  truncate: z.boolean().nullish().describe('Accepted; what does not fit is refused all the same.'),
  options: optionsSchema,
  keep_alive: common.keep_alive,
});

export const embeddingsBody = z.object({ model: modelName, prompt: z.string(), options: optionsSchema, keep_alive: common.keep_alive });

const logprob = z.looseObject({ token: z.string(), logprob: z.number() });
/** What the last line has besides, durations in nanoseconds. */
const told = {
  model: z.string(),
  created_at: z.string().describe('ISO 8601.'),
  done: z.boolean(),
  done_reason: z.enum(['stop', 'length', 'load', 'unload']).optional(),
  total_duration: z.int().optional().describe('Nanoseconds.'),
  load_duration: z.int().optional(),
  prompt_eval_count: z.int().optional(),
  prompt_eval_duration: z.int().optional(),
  eval_count: z.int().optional(),
  eval_duration: z.int().optional(),
  logprobs: z.array(logprob).optional(),
};

const call = z.object({ function: z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) }) });

export const chatAnswer = z.object({
  ...told,
  message: z.object({
    role: z.literal('assistant'),
    content: z.string(),
    thinking: z.string().optional(),
    tool_calls: z.array(call).optional(),
  }),
});

export const generateAnswer = z.object({ ...told, response: z.string(), thinking: z.string().optional() });

export const errorEvent = z.object({ error: z.string() });

export const embedAnswer = z.object({
  model: z.string(),
  embeddings: z.array(z.array(z.number())),
  total_duration: z.int().describe('Nanoseconds.'),
  load_duration: z.int(),
  prompt_eval_count: z.int(),
});

export const embeddingsAnswer = z.object({ embedding: z.array(z.number()) });
