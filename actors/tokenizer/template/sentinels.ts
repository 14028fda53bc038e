/**
 * Keeps text of a caller from being read as a control token once it stands inside a rendered chat template.
 * Used by encode/encode.ts for each chat prompt, in the tokenizer thread.
 *
 * Method: the keys of every guarded token (its first and its last character, mostly `<` and `>`) are replaced, in every string that
 * the caller sent, by private-use characters that occur in none of them (chosen anew for each prompt). The template is rendered, the
 * result is cut at control tokens, and only then do the keys come back, inside the pieces of plain text. So the beginning and the end
 * of a control token in the rendered text were written by the template, also when fields are joined. What is left is a template that
 * writes both around a caller's word: many do so with roles ('<|' + role + '|>'), so roles are checked as well.
 */
import { InferdError } from '../../messages/errors.js';
import { escapeForRegExp } from '../model/added-tokens.js';

/** Nesting of messages, tools and template arguments. */
const MAX_DEPTH = 128;
const PRIVATE_USE = /[\uE000-\uF8FF]/gu;
const STANDARD_ROLES: ReadonlySet<string> = new Set(['system', 'developer', 'user', 'assistant', 'tool', 'function', 'ipython', 'model']);

/** What a prompt's strings look like inside the template. */
export interface SentinelMap {
  /** Caller's text -> text for the template. */
  protect(text: string): string;
  /** Rendered text -> caller's characters again. */
  restore(text: string): string;
  /** False when no string held a key: `protect` and `restore` change nothing. */
  readonly active: boolean;
}

const INACTIVE: SentinelMap = { protect: (text) => text, restore: (text) => text, active: false };

export class SentinelGuard {
  readonly #keys: RegExp | null;
  readonly #guarded: readonly string[];

  /** @param guarded texts of the guarded added tokens. */
  constructor(guarded: readonly string[]) {
    this.#guarded = guarded;
    const keys = new Set(guarded.flatMap(keysOf));
    this.#keys = keys.size === 0 ? null : new RegExp([...keys].map(escapeForRegExp).join('|'), 'gu');
  }

  /** True when a literal of a template would look different inside protected text. */
  touches(literal: string): boolean {
    return this.#keys !== null && literal.search(this.#keys) >= 0;
  }

  /**
   * Chooses the replacements for one prompt.
   * @param values everything the caller sent; read only.
   * @param template its own private-use characters are left alone.
   * @param escapesUnicode the template may write \uXXXX escapes, so `restore` undoes those of the replacements too.
   */
  mapFor(values: readonly unknown[], template: string, escapesUnicode: boolean): SentinelMap {
    const keys = this.#keys;
    if (keys === null) return INACTIVE;
    const found = new Set<string>();
    visitStrings(values, 0, (text) => {
      for (const key of text.match(keys) ?? []) found.add(key);
    });
    if (found.size === 0) return INACTIVE;
    const taken = new Set<string>(template.match(PRIVATE_USE) ?? []);
    visitStrings(values, 0, (text) => {
      for (const unit of text.match(PRIVATE_USE) ?? []) taken.add(unit);
    });
    const to = new Map<string, string>();
    const back = new Map<string, string>();
    let code = 0xe000;
    for (const key of found) {
      while (code <= 0xf8ff && taken.has(String.fromCharCode(code))) code++;
      if (code > 0xf8ff) throw new InferdError('invalid_params', 'The messages use every private-use character; at least one must be free');
      const sentinel = String.fromCharCode(code++);
      to.set(key, sentinel);
      back.set(sentinel, key);
      if (escapesUnicode) back.set(`\\u${sentinel.charCodeAt(0).toString(16)}`, key);
    }
    const sentinels = new RegExp([...back.keys()].map(escapeForRegExp).join('|'), 'gu');
    return {
      active: true,
      protect: (text) => text.replace(keys, (key) => to.get(key) ?? key),
      restore: (text) => text.replace(sentinels, (sentinel) => back.get(sentinel) ?? sentinel),
    };
  }

  /** @throws InferdError for a role that a template could turn into a control token by writing around it. */
  checkRole(role: string, path: string): void {
    if (STANDARD_ROLES.has(role) || this.touches(role)) return;
    if (role === '' || this.#guarded.some((token) => token.includes(role))) {
      throw new InferdError('invalid_params', 'A message has a role that is not allowed', [{ path, message: 'This role is not allowed' }]);
    }
  }
}

/**
 * The characters of a token that are replaced in callers' text: the first and the last that are rare in words, JSON and white space,
 * or else the first of all.
 */
function keysOf(token: string): string[] {
  const characters = [...token];
  const rare = characters.filter((c) => !/[\p{Alphabetic}\p{N}\s"'\\{}:,.]/u.test(c));
  return [rare[0] ?? characters[0] ?? '', rare.at(-1) ?? ''].filter((key) => key !== '');
}

/** The same value with every string (keys too) replaced; shares nothing mutable with the input. */
export function mapStrings(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((item: unknown) => mapStrings(item, change));
  if (typeof value !== 'object' || value === null) return value;
  // fromEntries defines own properties, so a key named __proto__ stays a key.
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, item]) => item !== undefined)
      .map(([key, item]) => [change(key), mapStrings(item, change)]),
  );
}

function visitStrings(value: unknown, depth: number, visit: (text: string) => void): void {
  if (depth > MAX_DEPTH) throw new InferdError('invalid_params', `Messages and tools may be nested ${MAX_DEPTH} levels deep at most`);
  if (typeof value === 'string') visit(value);
  else if (Array.isArray(value)) for (const item of value) visitStrings(item, depth + 1, visit);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, item] of Object.entries(value)) {
      visit(key);
      visitStrings(item, depth + 1, visit);
    }
  }
}
