/** Bodies of /api/chat and /api/generate -> params of chat.completions.create, of completions.create where the prompt is raw. */

import { z } from 'zod';
import { checkAt, NO_IMAGES, unsupported } from '../chat/check.js';
import type { ChatBody, GenerateBody } from './schema.js';

type Params = Record<string, unknown>;

/** Their options, and what the methods call them. The others only steer memory and threads, or do nothing here. */
const options = {
  num_predict: 'max_tokens',
  temperature: 'temperature',
  top_k: 'top_k',
  top_p: 'top_p',
  min_p: 'min_p',
  typical_p: 'typical_p',
  repeat_penalty: 'repetition_penalty',
  presence_penalty: 'presence_penalty',
  frequency_penalty: 'frequency_penalty',
  seed: 'seed',
  stop: 'stop',
} as const;

/** Params of the methods in the words of this dialect, for errors. */
export const names: Readonly<Record<string, string>> = {
  ...Object.fromEntries(Object.entries(options).map(([theirs, ours]) => [ours, `options.${theirs}`])),
  response_format: 'format',
  'response_format.json_schema.schema': 'format',
};

/** A model's name without the tag that Ollama's clients add. */
export const nameOf = (model: string): string => model.replace(/:latest$/, '');

/** @throws InferdError invalid_params or unsupported */
export function chatParams(body: ChatBody): Params {
  return {
    ...commonParams(body),
    ...reasoningParams(body),
    messages: chatMessages(body.messages ?? []),
    ...((body.tools ?? []).length === 0 ? {} : { tools: body.tools }),
    ...(body.logprobs === true ? { logprobs: true, top_logprobs: body.top_logprobs ?? 0 } : {}),
  };
}

/** The method for a prompt, and its params. @throws InferdError invalid_params or unsupported */
export function generateParams(body: GenerateBody): { readonly method: string; readonly params: Params } {
  const { prompt, system, raw, images, suffix, template, context } = body;
  if ((images ?? []).length > 0) unsupported('images', NO_IMAGES);
  if (said(suffix)) unsupported('suffix', 'filling in before a suffix is not supported');
  if (said(template)) unsupported('template', "the model's own template is used");
  if ((context ?? []).length > 0) unsupported('context', 'send the conversation to /api/chat instead');
  if (raw === true) {
    if (said(system)) unsupported('system', 'a raw prompt has no system: write it into the prompt');
    if (body.logprobs === true) unsupported('logprobs', 'not with a raw prompt: ask /v1/completions');
    return { method: 'completions.create', params: { max_tokens: null, ...commonParams(body), prompt } };
  }
  const messages = [...(said(system) ? [{ role: 'system', content: system }] : []), { role: 'user', content: prompt ?? '' }];
  const logprobs = body.logprobs === true ? { logprobs: true, top_logprobs: body.top_logprobs ?? 0 } : {};
  return { method: 'chat.completions.create', params: { ...commonParams(body), ...reasoningParams(body), messages, ...logprobs } };
}

const said = (text: string | null | undefined): boolean => text !== undefined && text !== null && text !== '';

function commonParams({ model, stream, format, options: given }: ChatBody | GenerateBody): Params {
  return {
    model: nameOf(model),
    ...(stream === false ? {} : { stream: true }),
    ...formatParams(format),
    ...optionParams(given ?? {}),
  };
}

function formatParams(format: ChatBody['format']): Params {
  if (format === undefined || format === null || format === '') return {};
  return { response_format: format === 'json' ? { type: 'json_object' } : { type: 'json_schema', json_schema: { schema: format } } };
}

function optionParams(given: Readonly<Record<string, unknown>>): Params {
  if (Number(given['mirostat'] ?? 0) !== 0) unsupported('options.mirostat', 'mirostat is not supported');
  if (Number(given['tfs_z'] ?? 1) !== 1) unsupported('options.tfs_z', 'tail-free sampling is not supported');
  const { num_predict: most, seed } = given;
  const left = {
    ...given,
    // Theirs for "as many as fit" and "a random one".
    ...(typeof most === 'number' && most < 0 ? { num_predict: undefined } : {}),
    ...(seed === -1 ? { seed: undefined } : {}),
  } as Readonly<Record<string, unknown>>;
  const known = Object.entries(options).filter(([theirs]) => left[theirs] !== undefined && left[theirs] !== null);
  return Object.fromEntries(known.map(([theirs, ours]) => [ours, left[theirs]]));
}

function reasoningParams({ think }: ChatBody | GenerateBody): Params {
  if (think === undefined || think === null) return {};
  return typeof think === 'string' ? { reasoning_effort: think } : { chat_template_kwargs: { enable_thinking: think } };
}

/** Their calls may have no ids, and their results name the tool: each result belongs to the first call of its name that has none yet. */
function chatMessages(messages: NonNullable<ChatBody['messages']>): readonly object[] {
  let open: { readonly id: string; readonly name: string }[] = [];
  return messages.map((message, i) => {
    const { role, content, thinking, images, tool_calls: calls, tool_name: tool, tool_call_id: given } = message;
    const at = `messages[${i}]`;
    if ((images ?? []).length > 0) unsupported(`${at}.images`, NO_IMAGES);
    if (role === 'tool') {
      const text = checkAt(z.string(), content, `${at}.content`);
      const found = open.find(({ id, name }) => (said(given) ? id === given : !said(tool) || name === tool));
      open = open.filter((call) => call !== found);
      const id = said(given) ? given : found?.id;
      return { role, content: text, ...(id === undefined ? {} : { tool_call_id: id }), ...(said(tool) ? { name: tool } : {}) };
    }
    const made = (calls ?? []).map(({ id, function: { name, arguments: args } }, k) => ({
      id: id ?? `call_${i}_${k}`,
      type: 'function',
      function: { name, arguments: args ?? {} },
    }));
    if (made.length > 0) open = made.map(({ id, function: { name } }) => ({ id, name }));
    return {
      role,
      content: content ?? '',
      ...(said(thinking) ? { reasoning_content: thinking } : {}),
      ...(made.length > 0 ? { tool_calls: made } : {}),
    };
  });
}
