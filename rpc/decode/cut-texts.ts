/**
 * Cuts prompts that are certain to be refused for their length, before anybody has to carry them: 60 million characters would hold the event
 * loop for a second on their way to a tokenizer that takes no such text. What is left is refused as the whole would be, with the same error.
 *
 * There are two such lengths. A prompt may have more characters than all tokens that its model takes: a part of it that is too long, too,
 * stays. And a tokenizer may not take so long a stretch without a place to cut it (actors/messages/text-bounds.ts): then the stretch stays.
 * The second one counts where a prompt of any length is encoded, also where it is cut to `truncate_prompt_tokens` afterwards.
 *
 * A chat template puts a text in whole, or trims its ends: so what white space at the ends would be refused is shortened for itself, and so
 * is what lies between. Which texts there are is data (prompt-places.ts).
 */
import type { Failure } from '../../actors/messages/errors.js';
import { refusedStretch, type StretchBound } from '../../actors/messages/text-bounds.js';
import { type PromptPlaces, promptPlaces } from './prompt-places.js';

/** What the prompt of a model may be. */
export interface TextLimit {
  /** Characters, at most; Infinity where that is not known. */
  readonly chars: number;
  readonly stretch: StretchBound | null;
}

/** By the names that requests may give a model; '' stands for no name. */
export type TextLimits = ReadonlyMap<string, TextLimit>;

type Params = Record<string, unknown>;

/** What of `text` between two places is enough to be refused; null where that is not certain. */
type Shorten = (text: string, from: number, to: number) => string | null;

/** What clients of Ollama put behind a model's name. */
const OLLAMA_TAG = /:latest$/;
const LIST = '[]';
/** Characters that stay of a text whose refusal is certain. */
const SHOWN = 64;

/**
 * In place. `method` or its face; `params` as they came, of any form.
 * @returns what a raw text is refused with, of a method that says so itself: then hardly anything of the text is left.
 */
export function cutTexts(method: string, params: unknown, limits: TextLimits): Failure | null {
  const places = promptPlaces.get(method);
  if (places === undefined || !isObject(params)) return null;
  const model = params['lora'] ?? params['model'] ?? '';
  const limit = typeof model === 'string' ? (limits.get(model) ?? limits.get(model.replace(OLLAMA_TAG, ''))) : undefined;
  if (limit === undefined) return null;
  const shorten = shortening(places, params, limit);
  let refused: Failure | null = null;
  for (const path of places.raw) {
    changeTexts(params, path.split('.'), (text) => {
      const short = shorten(text, 0, text.length);
      if (short === null || places.refusedBy === 'limit') return short ?? text;
      refused = limit.stretch?.failure ?? null;
      return short.slice(0, SHOWN);
    });
  }
  for (const path of places.inTemplate) changeTexts(params, path.split('.'), (text) => cutTrimmed(text, shorten));
  return refused;
}

function shortening({ refusedBy }: PromptPlaces, params: Params, { chars, stretch }: TextLimit): Shorten {
  if (refusedBy === 'limit' && chars < Number.POSITIVE_INFINITY && (params['truncate_prompt_tokens'] ?? null) === null) {
    return (text, from, to) => (to - from > chars ? text.slice(from, from + chars + 1) : null);
  }
  return (text, from, to) => stretch && refusedStretch(text, from, to, stretch);
}

/** The texts at a path. */
function changeTexts(holder: unknown, [part = '', ...rest]: readonly string[], change: (text: string) => string): void {
  if (!isObject(holder) || holder['role'] === 'assistant') return;
  const isList = part.endsWith(LIST);
  const name = isList ? part.slice(0, -LIST.length) : part;
  const value = holder[name];
  if (!isList) {
    if (rest.length > 0) changeTexts(value, rest, change);
    else if (typeof value === 'string') holder[name] = change(value);
  } else if (Array.isArray(value)) {
    for (const [i, one] of value.entries()) {
      if (rest.length > 0) changeTexts(one, rest, change);
      else if (typeof one === 'string') value[i] = change(one);
    }
  }
}

/** Shortened so that it is refused, with its ends trimmed and not, if it was. */
function cutTrimmed(text: string, shorten: Shorten): string {
  let begin = 0;
  let end = text.length;
  while (begin < end && blankKind(text.charCodeAt(begin)) !== SOLID) begin++;
  while (end > begin && blankKind(text.charCodeAt(end - 1)) !== SOLID) end--;
  const short = shorten(text, begin, end);
  // It begins and ends as before, with something that nobody trims.
  const middle = short === null ? text.slice(begin, end) : text.charAt(begin) + short + text.charAt(end - 1);
  return cutBlanks(text, 0, begin, shorten) + middle + cutBlanks(text, end, text.length, shorten);
}

/** Each run of one kind for itself: whatever is trimmed, such a run stays or goes as a whole. */
function cutBlanks(text: string, from: number, to: number, shorten: Shorten): string {
  let cut = '';
  let kept = from;
  for (let at = from; at < to; ) {
    const kind = blankKind(text.charCodeAt(at));
    const begin = at++;
    while (at < to && blankKind(text.charCodeAt(at)) === kind) at++;
    const short = shorten(text, begin, at);
    if (short === null) continue;
    cut += text.slice(kept, begin) + short;
    kept = at;
  }
  return cut + text.slice(kept, to);
}

const SOLID = -1;
const WHITE_SPACE = -2;

/** Of what any template may trim: white space, which all of them do, or what only some do, each by itself. */
function blankKind(code: number): number {
  if (code < 0x80) return code > 0x20 ? SOLID : code === 0x20 || (code >= 0x09 && code <= 0x0d) ? WHITE_SPACE : code;
  if (code === 0x85 || code === 0x180e || code === 0x200b) return code;
  return /\s/.test(String.fromCharCode(code)) ? WHITE_SPACE : SOLID;
}

function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
