/** A prompt, or several, as texts or token ids: what clients may send, and what it is for the engine. */
import { z } from 'zod';
import type { PromptInput, TokenIds } from '../../actors/messages/requests.js';
import { idRange, isTokenIds } from './common.js';

export type PromptBody = string | TokenIds | readonly string[] | readonly TokenIds[];

/** `most` prompts in a call. `noEmpty`: an empty text is none either. */
export function promptSchema(most: number, { noEmpty = false }: { readonly noEmpty?: boolean } = {}) {
  const isText = (value: unknown): boolean => typeof value === 'string' && (value !== '' || !noEmpty);
  const isPrompt = (value: unknown): value is PromptBody => {
    if (value instanceof Int32Array) return isTokenIds(value);
    if (!Array.isArray(value)) return isText(value);
    if (value.length === 0) return false;
    if (typeof value[0] === 'number') return isTokenIds(value);
    if (value.length > most) return false;
    if (typeof value[0] === 'string') return value.every(isText);
    return value.every((p: unknown) => isTokenIds(p) && p.length > 0);
  };
  const error = `must be a string, a list of token ids, or a list of at most ${most} of either${noEmpty ? ', none of them empty' : ''}`;
  const ids = { type: 'array', items: idRange };
  return z
    .custom<PromptBody>(isPrompt, { error })
    .meta({ anyOf: [{ type: 'string' }, ids, { type: 'array', items: { type: 'string' } }, { type: 'array', items: ids }] });
}

export function promptInputs(prompt: PromptBody, addSpecialTokens: boolean): readonly PromptInput[] {
  const one = (p: string | TokenIds): PromptInput =>
    typeof p === 'string' ? { kind: 'text', text: p, addSpecialTokens } : { kind: 'ids', ids: p };
  if (typeof prompt === 'string' || isIds(prompt)) return [one(prompt)];
  return prompt.map(one);
}

function isIds(prompt: Exclude<PromptBody, string>): prompt is TokenIds {
  return typeof prompt[0] === 'number';
}
