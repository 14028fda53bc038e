/** Answers of the methods as lines of Ollama's: what was gained, and at the end counts and times. */
import type { ChatCompletion } from '../../schemas/chat.js';
import type { Usage } from '../../schemas/common.js';
import type { Completion } from '../../schemas/completion.js';
import { onlyChoice } from '../chat/parts.js';

export interface Call {
  readonly function: { readonly name: string; readonly arguments: Record<string, unknown> };
}

/** What a line tells, or all of an answer. */
export interface Gained {
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly Call[];
  readonly logprobs: readonly object[] | null;
}

export const nothing: Gained = { content: '', thinking: '', calls: [], logprobs: null };

/** How a route shows what was gained. */
export type Shape = (gained: Gained) => object;

export const chatShape: Shape = ({ content, thinking, calls, logprobs }) => ({
  message: {
    role: 'assistant',
    content,
    ...(thinking === '' ? {} : { thinking }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  },
  ...(logprobs === null ? {} : { logprobs }),
});

export const generateShape: Shape = ({ content, thinking, logprobs }) => ({
  response: content,
  ...(thinking === '' ? {} : { thinking }),
  ...(logprobs === null ? {} : { logprobs }),
});

export function line(model: string, shape: Shape, gained: Gained): object {
  return { model, created_at: new Date().toISOString(), ...shape(gained), done: false };
}

/** The last line, or a whole answer. */
export function lastLine(model: string, shape: Shape, gained: Gained, result: ChatCompletion | Completion): object {
  const finish = result.choices[0]?.finish_reason;
  return { ...line(model, shape, gained), done: true, done_reason: finish === 'length' ? 'length' : 'stop', ...durations(result.usage) };
}

export function durations({ prompt_tokens, completion_tokens, ttft_s, latency_s, queue_s }: Usage): object {
  return {
    total_duration: nanoseconds(latency_s),
    load_duration: 0,
    prompt_eval_count: prompt_tokens,
    prompt_eval_duration: nanoseconds(ttft_s - queue_s),
    eval_count: completion_tokens,
    eval_duration: nanoseconds(latency_s - ttft_s),
  };
}

export const nanoseconds = (seconds: number): number => Math.max(0, Math.round(seconds * 1e9));

/** All of a whole answer, of either method. */
export function gainedOf(result: ChatCompletion | Completion): Gained {
  if (result.object === 'text_completion') return { ...nothing, content: result.choices[0]?.text ?? '' };
  const { message, logprobs } = onlyChoice(result);
  return {
    content: message.content ?? '',
    thinking: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).flatMap(({ function: { name, arguments: text } }) => callOf(name, text)),
    logprobs: logprobs?.content ?? null,
  };
}

/** Ollama's calls have their arguments as a value, so one that the number of tokens cut is none: `done_reason` is "length" then. */
export function callOf(name: string, text: string): readonly Call[] {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return [{ function: { name, arguments: value as Record<string, unknown> } }]; // proof: just looked
    }
  } catch {
    // said above
  }
  return [];
}
