/**
 * Ids of earlier calls, as a template takes them: Mistral's refuse all but nine letters and digits, and a conversation may have begun with
 * another model or provider. Pure; called by answers.ts for each prompt of such a model.
 */
import type { ChatMessage } from '../../messages/requests.js';

/** Messages whose ids of calls have `length` letters and digits: the last ones of each, as in vLLM. A result keeps the id of its call. */
export function withShortIds(messages: readonly ChatMessage[], length: number): readonly ChatMessage[] {
  return messages.map((message) => {
    const { tool_calls: calls, tool_call_id: id } = message;
    return {
      ...message,
      ...(typeof id === 'string' ? { tool_call_id: shortId(id, length) } : {}),
      ...(Array.isArray(calls) ? { tool_calls: calls.map((call: unknown) => withShortId(call, length)) } : {}),
    };
  });
}

function withShortId(call: unknown, length: number): unknown {
  if (typeof call !== 'object' || call === null) return call;
  const { id } = call as { readonly id?: unknown };
  return typeof id === 'string' ? { ...call, id: shortId(id, length) } : call;
}

function shortId(id: string, length: number): string {
  return id
    .replace(/[^A-Za-z0-9]/g, '')
    .slice(-length)
    .padStart(length, '0');
}
