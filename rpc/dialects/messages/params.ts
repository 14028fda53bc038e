/** Bodies of Messages -> params of chat.completions.create, and of tokenize for the same prompt. */
import { refuse, unsupported } from '../chat/check.js';
import { sharedValues } from '../chat/fields.js';
import { chatMessages } from './conversation.js';
import type { CountBody, MessagesBody } from './schema.js';

/** Params of the methods in the words of this dialect, for errors. */
export const names = {
  max_completion_tokens: 'max_tokens',
  stop: 'stop_sequences',
  response_format: 'output_config.format',
  'response_format.json_schema.schema': 'output_config.format.schema',
  'tool_choice.function.name': 'tool_choice.name',
  'tools[].function': 'tools[]',
  'tools[].function.parameters': 'tools[].input_schema',
} as const;

/** @throws InferdError invalid_params or unsupported */
export function chatParams(body: MessagesBody, shared: object): Record<string, unknown> {
  const { tool_choice: choice, stop_sequences: stop } = body;
  const format = responseFormat(body);
  return {
    ...sharedValues(shared, body),
    ...promptParams(body),
    max_completion_tokens: body.max_tokens,
    ...(body.stream === true ? { stream: true } : {}),
    ...(stop === undefined || stop === null ? {} : { stop }),
    ...(choice === undefined || choice === null ? {} : { tool_choice: toolChoice(choice) }),
    ...(choice?.disable_parallel_tool_use === true ? { parallel_tool_calls: false } : {}),
    ...(format === null ? {} : { response_format: format }),
  };
}

/** What the prompt is made of; the method tokenize takes no more. @throws InferdError invalid_params or unsupported */
export function promptParams(body: CountBody): Record<string, unknown> {
  if ((body.mcp_servers ?? []).length > 0)
    unsupported('mcp_servers', 'servers of tools are not asked from here: call them and send what they answer');
  if (body.container !== undefined && body.container !== null) unsupported('container', 'there are no containers here');
  const args = { ...reasoningArgs(body), ...body.chat_template_kwargs };
  const tools = body.tool_choice?.type === 'none' ? [] : (body.tools ?? []);
  return {
    model: body.model,
    messages: chatMessages(body),
    ...(tools.length === 0 ? {} : { tools: tools.map((tool, i) => functionTool(tool, `tools[${i}]`)) }),
    ...(Object.keys(args).length === 0 ? {} : { chat_template_kwargs: args }),
  };
}

/** Variables of the template. A budget of thinking is a wish that nothing here enforces. */
function reasoningArgs({ thinking, output_config }: CountBody): Record<string, string | boolean> {
  const effort = output_config?.effort;
  return {
    ...(thinking === undefined || thinking === null ? {} : { enable_thinking: thinking.type !== 'disabled' }),
    ...(effort === undefined || effort === null ? {} : { reasoning_effort: effort }),
  };
}

function functionTool({ type, name, description, input_schema, strict }: NonNullable<CountBody['tools']>[number], path: string) {
  if (type !== undefined && type !== null && type !== 'custom') {
    unsupported(`${path}.type`, `tools of type ${JSON.stringify(type.slice(0, 64))} are not supported: only your own are`);
  }
  return { type: 'function', function: { name, description, parameters: input_schema, strict } };
}

function toolChoice({ type, name }: NonNullable<MessagesBody['tool_choice']>) {
  if (type === 'any') return 'required';
  if (type !== 'tool') return type;
  return { type: 'function', function: { name: name ?? refuse('tool_choice.name', 'is required') } };
}

function responseFormat({ output_config }: MessagesBody): object | null {
  const format = output_config?.format;
  if (format === undefined || format === null) return null;
  if (format.type !== 'json_schema') refuse('output_config.format.type', 'must be json_schema');
  const schema = format['schema'] ?? refuse('output_config.format.schema', 'is required');
  return { type: 'json_schema', json_schema: { schema } };
}
