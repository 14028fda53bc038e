/**
 * Earlier messages as gpt-oss's chat template takes them: of the calls of a message it shows only the first, a result belongs to the call
 * before it, a content of null is an error, and the reasoning before a call is a member of its own. Pure; used by harmony.ts.
 */
import type { ChatMessage } from '../../../messages/requests.js';

/** Each call in a message of its own, with its result behind it. */
export function oneCallEach(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const shown: ChatMessage[] = [];
  for (let i = 0; i < messages.length; ) {
    const message = messages[i++]!; // i < length
    const calls = callsOf(message);
    if (calls === null) {
      shown.push(message);
      continue;
    }
    const results: ChatMessage[] = [];
    while (messages[i]?.role === 'tool') results.push(messages[i++]!); // i < length
    calls.forEach((call, at) => {
      shown.push({ ...(at === 0 ? withReasoning(message) : {}), role: message.role, tool_calls: [call] } as unknown as ChatMessage); // proof: less `content`, which templates ask for
      const own = results.findIndex(({ tool_call_id: id }) => id === (call as { readonly id?: unknown } | null)?.id);
      shown.push(...results.splice(own === -1 ? 0 : own, calls.length === 1 ? results.length : 1));
    });
    shown.push(...results);
  }
  return shown;
}

function callsOf({ tool_calls: calls }: ChatMessage): readonly unknown[] | null {
  return Array.isArray(calls) && calls.length > 0 ? calls : null;
}

/** The template takes content or reasoning before a call, not both, and shows either as reasoning. */
function withReasoning({ content, reasoning_content: reasoning, ...message }: ChatMessage): Record<string, unknown> {
  if (typeof content === 'string' && content !== '') return { ...message, content };
  return typeof reasoning === 'string' && reasoning !== '' ? { ...message, thinking: reasoning } : message;
}
