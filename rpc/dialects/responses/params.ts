/** The body of a response -> params of chat.completions.create. What would need a store, or tools of OpenAI's own, is refused by name. */
import { z } from 'zod';
import { checkAt, refuse, unsupported } from '../chat/check.js';
import { sharedValues } from '../chat/fields.js';
import { chatMessages } from './items.js';
import type { ResponsesBody } from './schema.js';

/** Params of the method in the words of this dialect, for errors. */
export const names = {
  messages: 'input',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
  'response_format.json_schema': 'text.format',
  'response_format.json_schema.schema': 'text.format.schema',
  reasoning_effort: 'reasoning.effort',
  'tool_choice.function.name': 'tool_choice.name',
  'tools[].function': 'tools[]',
} as const;

const tool = z.looseObject({
  name: z.string(),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
  strict: z.boolean().nullish(),
});
const format = z.looseObject({
  type: z.enum(['text', 'json_object', 'json_schema'], { error: 'must be text, json_object or json_schema' }),
  name: z.string().nullish(),
  schema: z.unknown(),
  strict: z.boolean().nullish(),
});
const allowedTools = z.looseObject({
  mode: z.enum(['auto', 'required']),
  tools: z.array(z.looseObject({ type: z.string(), name: z.string() })),
});

/** @throws InferdError invalid_params or unsupported */
export function chatParams(body: ResponsesBody, shared: object): Record<string, unknown> {
  refuseStored(body);
  const logprobs = (body.top_logprobs ?? 0) > 0 || body.include?.includes('message.output_text.logprobs') === true;
  return {
    ...sharedValues(shared, body),
    ...(body.model === undefined || body.model === null ? {} : { model: body.model }),
    messages: chatMessages(body),
    ...(body.stream === true ? { stream: true } : {}),
    ...given('max_completion_tokens', body.max_output_tokens),
    ...(logprobs ? { logprobs: true, top_logprobs: body.top_logprobs ?? 0 } : {}),
    ...toolParams(body),
    ...given('parallel_tool_calls', body.parallel_tool_calls),
    ...given('reasoning_effort', body.reasoning?.effort),
    ...given('response_format', responseFormat(body)),
  };
}

const given = (name: string, value: unknown) => (value === undefined || value === null ? {} : { [name]: value });

function refuseStored({ store, previous_response_id, conversation, background, prompt, truncation, text }: ResponsesBody): void {
  const set = (value: unknown): boolean => value !== undefined && value !== null;
  if (store === true) unsupported('store', 'nothing is stored here: leave store out, or send false');
  if (set(previous_response_id)) unsupported('previous_response_id', 'nothing is stored here: send the whole conversation as input');
  if (set(conversation)) unsupported('conversation', 'nothing is stored here: send the whole conversation as input');
  if (background === true) unsupported('background', 'responses are not made in the background: stream them, or wait');
  if (set(prompt)) unsupported('prompt', 'there are no stored prompts here: send instructions and input');
  if (set(truncation) && truncation !== 'disabled')
    unsupported('truncation', 'input is never cut: leave truncation out, and send what fits');
  const { verbosity } = text ?? {};
  if (set(verbosity) && verbosity !== 'medium') unsupported('text.verbosity', 'no model here knows it: say it in the instructions');
}

function toolParams({ tools, tool_choice: choice }: ResponsesBody): object {
  const offered = (tools ?? []).map((one, i) => functionTool(one, `tools[${i}]`));
  if (typeof choice !== 'object' || choice === null) return { ...given('tools', tools && offered), ...given('tool_choice', choice) };
  if (choice.type === 'function') {
    const name = checkAt(z.string(), choice['name'], 'tool_choice.name');
    return { tools: offered, tool_choice: { type: 'function', function: { name } } };
  }
  if (choice.type !== 'allowed_tools') {
    unsupported('tool_choice.type', `tool_choice of type ${JSON.stringify(choice.type.slice(0, 64))} is not supported`);
  }
  const { mode, tools: allowed } = checkAt(allowedTools, choice, 'tool_choice');
  const names = new Set(allowed.map(({ name }) => name));
  return { tools: offered.filter((one) => names.has(one.function.name)), tool_choice: mode };
}

function functionTool(given: { readonly type: string }, path: string) {
  if (given.type !== 'function') {
    unsupported(`${path}.type`, `tools of type ${JSON.stringify(given.type.slice(0, 64))} are not supported: only function is`);
  }
  const { name, description, parameters, strict } = checkAt(tool, given, path);
  return { type: 'function' as const, function: { name, description, parameters, strict } };
}

function responseFormat({ text }: ResponsesBody): object | null {
  if (text?.format === undefined || text.format === null) return null;
  const { type, name, schema, strict } = checkAt(format, text.format, 'text.format');
  if (type !== 'json_schema') return { type };
  if (schema === undefined) refuse('text.format.schema', 'is required');
  return { type, json_schema: { name, schema, strict } };
}
