/** POST /v1/responses: body and answer in the shapes of OpenAI's Responses, without what needs a store. */
import { z } from 'zod';
import type { RequestLimits } from '../../schemas/common.js';
import { maxTokenCount } from '../../schemas/common.js';
import { modelField, sharedFields } from '../chat/fields.js';

const maxItems = 4096;
const maxTools = 128;
const loose = (error: string) => z.looseObject({ type: z.string({ error: 'must be a string' }) }, { error });

const included = [
  'message.output_text.logprobs',
  'reasoning.encrypted_content',
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'message.input_image.image_url',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
] as const;

export function responsesBody(limits: RequestLimits) {
  return z.object({
    model: modelField.nullish(),
    input: z
      .union(
        [
          z.string(),
          z
            .array(z.looseObject({ type: z.string().nullish(), role: z.string().nullish() }))
            .min(1)
            .max(maxItems),
        ],
        {
          error: 'must be a text, or a list of items: messages, function_call, function_call_output, reasoning',
        },
      )
      .describe('A text, or items: messages, function_call, function_call_output, reasoning.'),
    instructions: z.string().nullish().describe('A system message before the input.'),
    stream: z.boolean().nullish().describe('Answer with server-sent events.'),
    max_output_tokens: z.int().min(1).max(maxTokenCount).nullish(),
    top_logprobs: z.int().min(0).max(limits.maxTop).nullish().describe('Alternatives to report for each token.'),
    include: z
      .array(z.enum(included), { error: `must be a list of ${included.join(', ')}` })
      .nullish()
      .describe('message.output_text.logprobs; the others name what no answer here has.'),
    tools: z.array(loose('must be a tool {"type": "function", "name": ..., "parameters": ...}')).max(maxTools).nullish(),
    tool_choice: z
      .union([z.enum(['none', 'auto', 'required']), loose('must be an object')], {
        error: 'must be "none", "auto", "required" or {"type": "function", "name": ...}',
      })
      .nullish(),
    parallel_tool_calls: z.boolean().nullish().describe('false: of several calls in an answer only the first stays.'),
    text: z.looseObject({ format: loose('must be an object').nullish(), verbosity: z.string().nullish() }).nullish(),
    reasoning: z
      .looseObject({ effort: z.string().nullish() })
      .nullish()
      .describe('effort goes to the template of the model; there are no summaries.'),
    metadata: z.record(z.string(), z.string()).nullish().describe('Comes back in the answer.'),
    user: z.string().nullish().describe('Accepted and not used.'),
    store: z.boolean().nullish().describe('Refused when true: nothing is stored.'),
    previous_response_id: z.string().nullish().describe('Refused: nothing is stored.'),
    conversation: z.unknown().optional().describe('Refused: nothing is stored.'),
    background: z.boolean().nullish().describe('Refused when true.'),
    prompt: z.unknown().optional().describe('Refused: there are no stored prompts.'),
    truncation: z.string().nullish().describe('"disabled": what does not fit is refused.'),
    ...sharedFields(limits),
  });
}
export type ResponsesBody = z.output<ReturnType<typeof responsesBody>>;

const status = z.enum(['in_progress', 'completed', 'incomplete']);
const outputText = z.object({
  type: z.literal('output_text'),
  text: z.string(),
  annotations: z.array(z.never()),
  logprobs: z.array(z.unknown()),
});
const outputItem = z.discriminatedUnion('type', [
  z.object({ id: z.string(), type: z.literal('message'), status, role: z.literal('assistant'), content: z.array(outputText) }),
  z.object({
    id: z.string(),
    type: z.literal('reasoning'),
    status,
    summary: z.array(z.never()),
    content: z.array(z.object({ type: z.literal('reasoning_text'), text: z.string() })),
  }),
  z.object({
    id: z.string(),
    type: z.literal('function_call'),
    status,
    call_id: z.string(),
    name: z.string(),
    arguments: z.string().describe('JSON text.'),
  }),
]);
export type OutputItem = z.output<typeof outputItem>;

export const responseSchema = z.object({
  id: z.string(),
  object: z.literal('response'),
  created_at: z.int().describe('Seconds since the epoch.'),
  status: z.enum(['in_progress', 'completed', 'incomplete', 'failed']),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  incomplete_details: z.object({ reason: z.literal('max_output_tokens') }).nullable(),
  model: z.string(),
  output: z.array(outputItem),
  usage: z
    .object({
      input_tokens: z.int(),
      input_tokens_details: z.object({ cached_tokens: z.int() }),
      output_tokens: z.int(),
      output_tokens_details: z.object({ reasoning_tokens: z.int() }),
      total_tokens: z.int(),
    })
    .nullable(),
  instructions: z.string().nullable(),
  max_output_tokens: z.int().nullable(),
  metadata: z.record(z.string(), z.string()),
  parallel_tool_calls: z.boolean(),
  previous_response_id: z.null(),
  reasoning: z.looseObject({}),
  store: z.literal(false),
  background: z.literal(false),
  temperature: z.number().nullable().describe('null: what the model recommends.'),
  top_p: z.number().nullable(),
  top_logprobs: z.int(),
  text: z.looseObject({}),
  tool_choice: z.unknown(),
  tools: z.array(z.unknown()),
  truncation: z.literal('disabled'),
  user: z.string().nullable(),
});
export type ResponseObject = z.output<typeof responseSchema>;

/** Every event has a type and a number; what else it has depends on the type. */
export const responseEvent = z.looseObject({
  type: z.string().describe('Such as response.output_text.delta.'),
  sequence_number: z.int().describe('Counts from 0 without gaps.'),
});
