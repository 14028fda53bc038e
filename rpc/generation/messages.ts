/**
 * Chat messages as the model's template wants them: text parts joined, arguments of earlier tool calls as objects, no null content.
 * As in vLLM, parts are joined with a newline and members that we do not know pass through.
 */
import { InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { ChatMessage, PromptInput, ToolChoice } from '../../actors/messages/requests.js';
import type { MessageBody, ToolBody } from '../schemas/messages.js';

export interface ChatPromptBody {
  readonly messages: readonly MessageBody[];
  readonly tools?: readonly ToolBody[] | null | undefined;
  readonly add_generation_prompt?: boolean | null | undefined;
  readonly parallel_tool_calls?: boolean | null | undefined;
  readonly reasoning_effort?: string | null | undefined;
  readonly chat_template_kwargs?: Readonly<Record<string, string | number | boolean | null>> | null | undefined;
}

/** `tools`: those the template may show, empty for none. `choice`: a call that is forced. @throws InferdError invalid_params or unsupported */
export function chatPrompt(body: ChatPromptBody, tools: readonly ToolBody[], choice: ToolChoice | null = null): PromptInput {
  const args = templateArgs(body);
  return {
    kind: 'chat',
    messages: body.messages.map(chatMessage),
    ...(tools.length === 0 ? {} : { tools }),
    addGenerationPrompt: body.add_generation_prompt ?? true,
    ...(choice === null ? {} : { toolChoice: choice }),
    ...(body.parallel_tool_calls === false ? { parallelToolCalls: false } : {}),
    ...(args === null ? {} : { templateArgs: args }),
  };
}

/** What the request says of reasoning is a variable of the template too; the caller's own variables win. */
function templateArgs({ reasoning_effort: effort, chat_template_kwargs: args }: ChatPromptBody): Readonly<Record<string, unknown>> | null {
  if (effort === undefined || effort === null) return args ?? null;
  return { reasoning_effort: effort, ...(effort === 'none' ? { enable_thinking: false } : {}), ...args };
}

function chatMessage(message: MessageBody, index: number): ChatMessage {
  const at = `messages[${index}]`;
  const { content, tool_calls: calls, name, tool_call_id: callId, ...rest } = message;
  const hasCalls = calls !== undefined && calls !== null && calls.length > 0;
  // What an assistant left empty is empty text: it called tools, or only reasoned.
  if ((content === undefined || content === null) && message.role !== 'assistant')
    throw invalidParams([{ path: `${at}.content`, message: 'is missing' }]);
  return {
    ...rest,
    content: contentText(content ?? '', `${at}.content`),
    ...(hasCalls ? { tool_calls: calls.map((call, i) => templateCall(call, `${at}.tool_calls[${i}]`)) } : {}),
    ...(typeof name === 'string' ? { name } : {}),
    ...(typeof callId === 'string' ? { tool_call_id: callId } : {}),
  };
}

function contentText(content: NonNullable<MessageBody['content']>, path: string): string {
  if (typeof content === 'string') return content;
  return content
    .map((part, i) => {
      if (part.type !== 'text')
        throw new InferdError('unsupported', 'Only content parts of type text are supported', [{ path: `${path}[${i}]` }]);
      if (part.text === undefined) throw invalidParams([{ path: `${path}[${i}].text`, message: 'is missing' }]);
      return part.text;
    })
    .join('\n');
}

/** Templates print arguments with their own JSON filter, so a JSON text would come out quoted twice. */
function templateCall(call: NonNullable<NonNullable<MessageBody['tool_calls']>[number]>, path: string): object {
  const given = call.function.arguments ?? {};
  return {
    ...call,
    type: 'function',
    function: { ...call.function, arguments: typeof given === 'string' ? parseArguments(given, path) : given },
  };
}

function parseArguments(text: string, path: string): unknown {
  if (text.trim() === '') return {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // said below
  }
  throw invalidParams([{ path: `${path}.function.arguments`, message: 'must be the JSON text of an object' }]);
}
