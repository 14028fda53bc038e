/** A chat completion as a message of blocks. */
import type { ChatCompletion } from '../../schemas/chat.js';
import type { Usage } from '../../schemas/common.js';
import { type Choice, onlyChoice, type Part, wholeParts } from '../chat/parts.js';
import type { AnswerBlock, MessageObject, MessageUsage, StopReason } from './schema.js';

export interface MessageHead {
  /** Of the answer: "chatcmpl-…"; the message has the same behind "msg_". */
  readonly id: string;
  readonly model: string;
}

/** A message that has nothing yet. */
export function emptyMessage({ id, model }: MessageHead, usage: Usage): MessageObject {
  return {
    id: id.replace(/^chatcmpl-/, 'msg_'),
    type: 'message',
    role: 'assistant',
    model,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: usageObject(usage),
  };
}

export function wholeMessage(completion: ChatCompletion): MessageObject {
  const choice = onlyChoice(completion);
  return { ...emptyMessage(completion, completion.usage), content: wholeParts(choice).map(blockOf), ...endOf(choice) };
}

export function usageObject({ prompt_tokens, completion_tokens, prompt_tokens_details: { cached_tokens } }: Usage): MessageUsage {
  return {
    input_tokens: prompt_tokens - cached_tokens,
    cache_read_input_tokens: cached_tokens,
    cache_creation_input_tokens: 0,
    output_tokens: completion_tokens,
  };
}

const reasons: Readonly<Record<Choice['finish_reason'], StopReason>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  abort: 'end_turn',
};

export function endOf({ finish_reason, stop_reason }: Choice): Pick<MessageObject, 'stop_reason' | 'stop_sequence'> {
  if (finish_reason === 'stop' && typeof stop_reason === 'string') return { stop_reason: 'stop_sequence', stop_sequence: stop_reason };
  return { stop_reason: reasons[finish_reason], stop_sequence: null };
}

function blockOf(part: Part): AnswerBlock {
  if (part.kind === 'text') return { type: 'text', text: part.text, citations: null };
  if (part.kind === 'reasoning') return { type: 'thinking', thinking: part.text, signature: '' };
  const { id, name } = part.start ?? { id: '', name: '' }; // proof: a whole call has its start
  return { type: 'tool_use', id, name, input: inputOf(part.text) };
}

/** Arguments that the number of tokens cut are no value: the block is empty then, and stop_reason is max_tokens. */
function inputOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>; // proof: just looked
  } catch {
    // said above
  }
  return {};
}

/** A block before its first delta. */
export function emptyBlock(part: Part): AnswerBlock {
  return blockOf({ ...part, text: '' });
}

export function deltaOf({ kind, text }: Part): object {
  if (kind === 'text') return { type: 'text_delta', text };
  return kind === 'reasoning' ? { type: 'thinking_delta', thinking: text } : { type: 'input_json_delta', partial_json: text };
}
