/**
 * Checks the params of a call against the schema of its method, once, and says what is wrong as [{path, message}].
 *
 * Positional params are taken in the order in which the schema declares its top-level keys (rpc.discover lists them in that order).
 * Lists and objects are bounded before the schema sees them: a schema library collects one issue per element, so a million wrong
 * elements would cost far more than the message did.
 */
import type { z } from 'zod';
import { invalidParams } from '../actors/messages/errors.js';
import type { GivenFields } from './given-fields.js';
import { issueText } from './issue-text.js';

/** Longest list, or object, in params; lists of token ids have their own limits. */
const maxItems = 4096;
/** Issues of a schema that are read. */
const maxIssues = 16;

/** `quick`: of the same schema. @throws InferdError invalid_params */
export function checkParams<S extends z.ZodObject>(
  schema: S,
  params: unknown,
  longLists: ReadonlySet<string>,
  quick: GivenFields<S> | null = null,
): z.output<S> {
  const named = (Array.isArray(params) ? byName(Object.keys(schema.shape), params) : (params ?? {})) as Readonly<Record<string, unknown>>; // proof: params are an object here
  const keys = Object.keys(named); // once: 32,000 keys that are numbers take 10 ms to be put in order
  for (const key of keys) {
    const found = tooLong(named[key], longLists.has(key));
    if (found !== null) throw invalidParams([{ path: `${key.slice(0, 64)}${found}`, message: `has more than ${maxItems} elements` }]);
  }
  const given = quick?.(named, keys) ?? null;
  if (given !== null) return given;
  const parsed = parse(schema, named);
  if (parsed.success) return parsed.data;
  throw invalidParams(parsed.error.issues.slice(0, maxIssues).map((issue) => ({ path: pathOf(issue.path), message: issue.message })));
}

/** zod compares the length of what is neither text nor list too, and throws where that is nothing to compare (4.6). */
function parse<S extends z.ZodObject>(schema: S, named: object): z.ZodSafeParseResult<z.output<S>> {
  try {
    return schema.safeParse(named, { error: issueText });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw invalidParams([{ path: '', message: 'an object whose "length" is no number stands where a text or a list has to be' }]);
  }
}

function byName(names: readonly string[], values: readonly unknown[]): Record<string, unknown> {
  if (values.length > names.length) {
    throw invalidParams([{ path: '', message: `at most ${names.length} positional params: ${names.join(', ') || 'none'}` }]);
  }
  return Object.fromEntries(values.map((value, i) => [names[i] ?? '', value]));
}

/** Where under `value` the first list or object is too long, as a path suffix, or null. Depth is bounded by the decoder. */
function tooLong(value: unknown, idsAllowed: boolean): string | null {
  if (typeof value !== 'object' || value === null) return null;
  if (value instanceof Int32Array) return idsAllowed || value.length <= maxItems ? null : '';
  if (Array.isArray(value)) {
    if (idsAllowed && typeof value[0] === 'number') return null;
    if (value.length > maxItems) return '';
    for (let i = 0; i < value.length; i++) {
      const found = tooLong(value[i], idsAllowed);
      if (found !== null) return `[${i}]${found}`;
    }
    return null;
  }
  const keys = Object.keys(value);
  if (keys.length > maxItems) return '';
  for (const key of keys) {
    const found = tooLong((value as Record<string, unknown>)[key], false);
    if (found !== null) return `.${key.slice(0, 64)}${found}`;
  }
  return null;
}

/** "messages", 0, "role" -> "messages[0].role". */
function pathOf(path: readonly PropertyKey[]): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += `${text === '' ? '' : '.'}${String(part).slice(0, 64)}`;
  }
  return text;
}
