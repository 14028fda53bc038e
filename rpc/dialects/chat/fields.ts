/**
 * Parameters of a chat completion that every dialect takes under their own name, beside those that it has words of its own for: sampling,
 * ends, the form of the answer. What is refused by name there is refused here too.
 */
import { z } from 'zod';
import { chatBody } from '../../schemas/chat.js';
import type { RequestLimits } from '../../schemas/common.js';

/** Fields for z.object. */
export function sharedFields(limits: RequestLimits) {
  return chatBody(limits).omit({
    model: true,
    messages: true,
    stream: true,
    stream_options: true,
    max_tokens: true,
    max_completion_tokens: true,
    n: true,
    best_of: true,
    logprobs: true,
    top_logprobs: true,
    prompt_logprobs: true,
    return_token_ids: true,
    response_format: true,
    reasoning_effort: true,
    tools: true,
    tool_choice: true,
    parallel_tool_calls: true,
    add_generation_prompt: true,
    user: true,
  }).shape;
}

/** Their values in a checked body, as params of the call. `fields`: those that the dialect took from above. */
export function sharedValues(fields: object, body: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(body).filter(([name]) => name in fields));
}

/** `model` of every dialect. */
export const modelField = z.string().min(1, 'must not be empty');
