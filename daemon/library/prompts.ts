/** What a program may ask an engine for, and which method of the protocol answers it. Pure. */
import type { ChatCompletionParams, CompletionParams } from '../../rpc/client/types.js';

/** A text to continue, or its token ids. */
export type TextPrompt = string | readonly number[];
/** A conversation to answer; may bring parameters of its own, which win over those given for all. */
export type ChatPrompt = ChatCompletionParams;
export type Prompt = TextPrompt | ChatPrompt;

/** OpenAI's parameters of a text completion, and inferd's: temperature, max_tokens (16 when not given), stop, seed, n, logprobs, ... */
export type TextParams = Omit<CompletionParams, 'prompt'>;
/** The same of a chat completion. */
export type ChatParams = Partial<Omit<ChatCompletionParams, 'messages'>>;
export type Params = TextParams | ChatParams;

/** One call of a method that generates. */
export type Ask =
  | { readonly kind: 'chat'; readonly body: ChatCompletionParams }
  | { readonly kind: 'text'; readonly body: CompletionParams };

/** True for a list of prompts, which one of token ids is not. */
export function isList(prompts: Prompt | readonly Prompt[]): prompts is readonly Prompt[] {
  return Array.isArray(prompts) && typeof prompts[0] !== 'number';
}

/** What is no prompt at all is left for the method to refuse, in its words. */
export function askFor(prompt: Prompt, params: Params): Ask {
  if (typeof prompt !== 'object' || prompt === null || Array.isArray(prompt)) {
    return { kind: 'text', body: { ...(params as TextParams), prompt: prompt as CompletionParams['prompt'] } };
  }
  return { kind: 'chat', body: { ...(params as ChatParams), ...(prompt as ChatPrompt) } };
}

/** The parameters of prompt `index`: one object counts for all. @throws TypeError when a list of them has another length */
export function paramsFor(params: Params | readonly Params[], index: number, count: number): Params {
  if (!isParamsList(params)) return params;
  if (params.length !== count)
    throw new TypeError(`There are ${count} prompts and ${params.length} parameters; give one for each, or one object for all`);
  return params[index] ?? {};
}

function isParamsList(params: Params | readonly Params[]): params is readonly Params[] {
  return Array.isArray(params);
}
