/** All formats of calls, in the order in which a template is asked: the last takes every template. */
import type { CallFormat } from '../call-format.js';
import type { ReasoningFormat } from '../reasoning-reader.js';
import { granite } from './granite.js';
import { harmony } from './harmony.js';
import { hermes } from './hermes.js';
import { llama3Json } from './llama3-json.js';
import { mistral, mistralList } from './mistral.js';
import { pythonic } from './pythonic.js';
import { reasoningFormats } from './reasoning.js';

export const callFormats: readonly CallFormat[] = [harmony, mistral, mistralList, granite, hermes, pythonic, llama3Json];

/**
 * How a model with this chat template writes calls.
 * @param choice inference.tool_call_parser: "auto", "none" or the name of a format.
 */
export function callFormatOf(template: string, choice: string): CallFormat | null {
  return chosen(callFormats, template, choice);
}

/**
 * How a model with this chat template marks its reasoning; null when it has none.
 * @param choice inference.reasoning_parser, as above.
 */
export function reasoningFormatOf(template: string, choice: string): ReasoningFormat | null {
  return chosen(reasoningFormats, template, choice);
}

/** Both, for the choices of `parsers`: where an answer is messages in channels, reasoning is one of them and has no format of its own. */
export function formatsOf(
  template: string,
  parsers: { readonly toolCalls: string; readonly reasoning: string },
): { readonly calls: CallFormat | null; readonly reasoning: ReasoningFormat | null } {
  const calls = callFormatOf(template, parsers.toolCalls);
  return { calls, reasoning: calls?.channels === undefined ? reasoningFormatOf(template, parsers.reasoning) : null };
}

interface Named {
  readonly name: string;
  readonly fits: (template: string) => boolean;
}

function chosen<F extends Named>(formats: readonly F[], template: string, choice: string): F | null {
  const wanted = choice === 'auto' ? (one: F) => one.fits(template) : (one: F) => one.name === choice;
  return formats.find(wanted) ?? null;
}
