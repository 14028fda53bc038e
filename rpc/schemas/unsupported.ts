/**
 * Fields that OpenAI or vLLM clients may send and that would change the answer in a way this daemon cannot do yet. They are refused by
 * name with -32011 instead of being ignored in silence. Other unknown fields are ignored, as vLLM does.
 */
import { z } from 'zod';
import { InferdError } from '../../actors/messages/errors.js';

const given = (value: unknown): boolean => value !== undefined && value !== null && value !== false && value !== '';

interface Rule {
  readonly name: string;
  readonly refuses: (value: unknown) => boolean;
  readonly what: string;
}

const rules: readonly Rule[] = [
  { name: 'functions', refuses: given, what: 'functions is not supported: use tools' },
  { name: 'function_call', refuses: given, what: 'function_call is not supported: use tool_choice' },
  { name: 'continue_final_message', refuses: given, what: 'continue_final_message is not supported' },
  { name: 'chat_template', refuses: given, what: "chat_template is not supported: the model's own template is used" },
  { name: 'use_beam_search', refuses: given, what: 'Beam search is not supported' },
  { name: 'suffix', refuses: given, what: 'suffix is not supported' },
  { name: 'prompt_embeds', refuses: given, what: 'prompt_embeds is not supported' },
  { name: 'bad_words', refuses: (v) => given(v) && !(Array.isArray(v) && v.length === 0), what: 'bad_words is not supported' },
  { name: 'allowed_token_ids', refuses: given, what: 'allowed_token_ids is not supported' },
  { name: 'thinking_token_budget', refuses: given, what: 'thinking_token_budget is not supported: reasoning cannot be cut short yet' },
  { name: 'audio', refuses: given, what: 'Audio is not supported' },
];

/**
 * Fields for z.object, accepted in any shape so that `refuseUnsupported` can say what is wrong. Typed as none, because no handler may
 * read them.
 */
export const unsupportedFields = Object.fromEntries(
  rules.map((r) => [r.name, z.unknown().optional().describe(`Refused with -32011. ${r.what}.`)]),
) as Readonly<Record<never, z.ZodUnknown>>;

/** @throws InferdError unsupported, naming the first such field that is set */
export function refuseUnsupported(body: object): void {
  for (const rule of rules) {
    if (rule.refuses((body as Readonly<Record<string, unknown>>)[rule.name])) throw new InferdError('unsupported', rule.what);
  }
}
