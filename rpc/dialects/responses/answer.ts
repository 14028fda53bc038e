/** A chat completion as a response: items of its output, and the object around them. */
import { randomUUID } from 'node:crypto';
import { errorTable, type Failure } from '../../../actors/messages/errors.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import type { Usage } from '../../schemas/common.js';
import { onlyChoice, type Part, wholeParts } from '../chat/parts.js';
import type { OutputItem, ResponseObject, ResponsesBody } from './schema.js';

/** What stays the same in all objects of one response. */
export interface ResponseHead {
  /** Of the answer: "chatcmpl-…"; the response has the same behind "resp_". */
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

type Status = OutputItem['status'];

/** How a response stands, or ended. */
export interface Outcome {
  readonly status: ResponseObject['status'];
  readonly output: readonly OutputItem[];
  readonly usage: Usage | null;
  readonly error?: ResponseObject['error'];
}

export function responseObject(asked: ResponsesBody, head: ResponseHead, { status, output, usage, error = null }: Outcome): ResponseObject {
  return {
    id: head.id.replace(/^chatcmpl-/, 'resp_'),
    object: 'response',
    created_at: head.created,
    status,
    error,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    model: head.model,
    output: [...output],
    usage: usage && usageObject(usage),
    instructions: asked.instructions ?? null,
    max_output_tokens: asked.max_output_tokens ?? null,
    metadata: asked.metadata ?? {},
    parallel_tool_calls: asked.parallel_tool_calls ?? true,
    previous_response_id: null,
    reasoning: { effort: asked.reasoning?.effort ?? null, summary: null },
    store: false,
    background: false,
    temperature: asked.temperature ?? null,
    top_p: asked.top_p ?? null,
    top_logprobs: asked.top_logprobs ?? 0,
    text: { format: asked.text?.format ?? { type: 'text' } },
    tool_choice: asked.tool_choice ?? 'auto',
    tools: asked.tools ?? [],
    truncation: 'disabled',
    user: asked.user ?? null,
  };
}

function usageObject(usage: Usage): NonNullable<ResponseObject['usage']> {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: { cached_tokens: usage.prompt_tokens_details.cached_tokens },
    output_tokens: usage.completion_tokens,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
    total_tokens: usage.total_tokens,
  };
}

export const statusOf = (finish: string): 'completed' | 'incomplete' => (finish === 'length' ? 'incomplete' : 'completed');

/** What a response says of a failure. */
export function errorObject({ kind, message }: Failure): NonNullable<ResponseObject['error']> {
  const row = errorTable[kind];
  return { code: row.status === 429 ? 'rate_limit_exceeded' : 'server_error', message: message ?? row.message };
}

const prefixes = { reasoning: 'rs', text: 'msg', call: 'fc' } as const;

/** An item with the text that it has so far. `from`: the part that began it. */
export function outputItem(id: string, from: Part, text: string, status: Status, logprobs: readonly object[] = []): OutputItem {
  if (from.kind === 'text') return { id, type: 'message', status, role: 'assistant', content: [textContent(text, logprobs)] };
  if (from.kind === 'reasoning') return { id, type: 'reasoning', status, summary: [], content: [{ type: 'reasoning_text', text }] };
  const { id: callId, name } = from.start ?? { id: '', name: '' }; // proof: the first part of a call has its start
  return { id, type: 'function_call', status, call_id: callId, name, arguments: text };
}

export function textContent(text: string, logprobs: readonly object[] = []) {
  return { type: 'output_text' as const, text, annotations: [], logprobs: logprobs as object[] };
}

export const itemId = (kind: Part['kind']): string => `${prefixes[kind]}_${randomUUID().replaceAll('-', '')}`;

/** The response of a whole completion. */
export function wholeResponse(asked: ResponsesBody, completion: ChatCompletion): ResponseObject {
  const choice = onlyChoice(completion);
  const status = statusOf(choice.finish_reason);
  const parts = wholeParts(choice);
  const logprobs = choice.logprobs?.content ?? [];
  const output = parts.map((part, i) =>
    outputItem(itemId(part.kind), part, part.text, i === parts.length - 1 ? status : 'completed', part.kind === 'text' ? logprobs : []),
  );
  return responseObject(asked, completion, { status, output, usage: completion.usage });
}
