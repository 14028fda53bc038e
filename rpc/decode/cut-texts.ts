/**
 * Cuts prompts that are certain to be refused for their length, before anybody has to carry them: 60 million characters would hold the event
 * loop for a second on their way to a tokenizer that counts no further than a model's limit. What is left is longer than the limit, so
 * it is refused as the whole would be, with the same error.
 *
 * A chat template puts a message in whole, or trims its ends: so white space at the ends is shortened to the limit each, and what lies
 * between is cut. Templates read more than that of an assistant's message (what it reasoned is left out), so these stay as they are, and so
 * does all that is cut to `truncate_prompt_tokens` later, which keeps the end.
 */

/** Characters that the prompt of a model may have at most, by the names that requests may give it; '' stands for no name. */
export type TextLimits = ReadonlyMap<string, number>;

type Params = Record<string, unknown>;

const places: Readonly<Record<string, 'prompt' | 'input' | 'messages'>> = {
  'completions.create': 'prompt',
  'embeddings.create': 'input',
  'chat.completions.create': 'messages',
};

/** In place. `method` or its face; `params` as they came, of any form. */
export function cutTexts(method: string, params: unknown, limits: TextLimits): void {
  const place = places[method];
  if (place === undefined || !isObject(params) || (params['truncate_prompt_tokens'] ?? null) !== null) return;
  const { model = '' } = params;
  const most = typeof model === 'string' ? limits.get(model) : undefined;
  if (most === undefined) return;
  if (place === 'messages') for (const message of listOf(params[place])) cutMessage(message, most);
  else cutMembers(params, place, most);
}

function cutMessage(message: unknown, most: number): void {
  if (!isObject(message) || message['role'] === 'assistant') return;
  cutMembers(message, 'content', most);
  for (const part of listOf(message['content'])) if (isObject(part)) cutMembers(part, 'text', most);
}

/** A text, or the texts of a list. */
function cutMembers(holder: Params, name: string, most: number): void {
  const value = holder[name];
  if (typeof value === 'string') holder[name] = cut(value, most);
  else if (Array.isArray(value)) {
    for (const [i, text] of value.entries()) if (typeof text === 'string') value[i] = cut(text, most);
  }
}

/** The text, or a part of it that is longer than `most`, where the text is, with its ends trimmed and not. */
function cut(text: string, most: number): string {
  if (text.length <= most) return text;
  let begin = 0;
  let end = text.length;
  while (begin < end && isBlank(text.charCodeAt(begin))) begin++;
  while (end > begin && isBlank(text.charCodeAt(end - 1))) end--;
  const ends = most + 1;
  // It ends as before, with something that nobody trims.
  const middle = end - begin <= ends ? text.slice(begin, end) : text.slice(begin, begin + ends) + text.charAt(end - 1);
  return text.slice(0, Math.min(begin, ends)) + middle + text.slice(Math.max(end, text.length - ends));
}

/** What any template may trim: white space of Unicode, and what Python counts to it. */
function isBlank(code: number): boolean {
  if (code < 0x80) return code <= 0x20;
  return code === 0x85 || code === 0x180e || code === 0x200b || /\s/.test(String.fromCharCode(code));
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is Params {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
