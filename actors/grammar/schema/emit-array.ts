/** An array as GBNF. */
import { ConstraintError } from '../error.js';
import { wordsOf } from '../pattern/expr.js';
import { inString } from '../text/json-text.js';
import { membersText } from '../text/members.js';
import { FIXED_LAYOUT } from '../text/space.js';
import { literal, sequence, times } from '../text/writer.js';
import { identity, literalValue } from '../value/literal.js';
import type { ArrayAlternative, Conditions } from './alternatives.js';
import type { ValueWriter } from './value-writer.js';

/** So many different items are written as a list in which each may come once, in order. */
const MAX_LISTED = 256;

/** The alternative must be possible. */
export function arrayText(a: ArrayAlternative, e: ValueWriter, canonical: boolean): string {
  const { gap, comma } = e.layout(canonical);
  const { maxRepeat } = e.writer.meter.limits;
  const { parts } = e;
  const end = a.prefix.findIndex((c) => !parts.isInhabited(c));
  const prefix = end < 0 ? a.prefix : a.prefix.slice(0, end);
  const rest = end < 0 && a.max > prefix.length && parts.isInhabited(a.rest) ? a.rest : null;
  const max = Math.min(a.max === Infinity ? a.max : Math.min(a.max, prefix.length + maxRepeat), rest === null ? prefix.length : Infinity);
  if (a.min > prefix.length + maxRepeat) {
    throw new ConstraintError(`The keyword "minItems" asks for ${a.min} items, more than structured_output.max_repeat = ${maxRepeat}.`);
  }
  const unique = a.unique && max > 1;
  const words = unique && prefix.length === 0 && rest !== null ? finiteTexts(rest, e) : null;
  if (words !== null) return listedOnce(words, a, max, e, canonical);
  const item = (conditions: Conditions): string =>
    unique ? e.writer.distinct([], e.value(conditions, true)) : e.value(conditions, canonical);
  const content = sequenceOf(prefix.map(item), rest === null ? null : item(rest), a.min, max, comma, e);
  const body = content === '' ? sequence('"["', gap, '"]"') : sequence('"["', gap, content, gap, '"]"');
  return unique ? e.writer.scope(body) : body;
}

/** Items of given places, each needed while fewer than `min` are there, then any number of others. */
function sequenceOf(prefix: readonly string[], rest: string | null, min: number, max: number, comma: string, e: ValueWriter): string {
  const [lo, hi] = [Math.max(0, min - prefix.length), max - prefix.length];
  let content = '';
  if (rest !== null && hi > 0) {
    if (prefix.length > 0) content = times(`( ${comma} ${rest} )`, lo, hi);
    else content = sequence(rest, times(`( ${comma} ${rest} )`, Math.max(0, lo - 1), hi - 1));
    if (prefix.length === 0 && lo === 0) content = `( ${content} )?`;
  }
  const kept = prefix.slice(0, Math.min(prefix.length, max));
  for (let i = kept.length - 1; i >= 0; i--) {
    const here = sequence(i > 0 ? comma : '', kept[i]!, content);
    content = i < min ? here : `( ${here} )?`;
    // Parentheses in parentheses only to a small depth.
    if ((kept.length - i) % 8 === 0) content = e.writer.define(e.writer.newName('a'), content);
  }
  return content;
}

/** Every value of the part in its one spelling, when there are few and all are scalars. */
function finiteTexts(conditions: Conditions, e: ValueWriter): readonly string[] | null {
  const part = e.parts.of(conditions);
  if (part === undefined) return null;
  const texts = new Map<string, string>();
  for (const a of part.alternatives.filter((x) => e.parts.isPossible(x))) {
    if (a.type === 'constant') {
      for (const value of a.values) texts.set(identity(value), literalValue(value, FIXED_LAYOUT, e.writer));
      continue;
    }
    if (a.type === 'array' || a.type === 'object' || (a.type === 'number' && a.integer !== true)) return null;
    const expr = a.type === 'number' ? e.parts.numbers(a) : e.parts.languages.of(a).expr;
    const words = expr === null ? null : wordsOf(expr, MAX_LISTED);
    if (words === null) return null;
    for (const word of words) {
      const text = a.type === 'number' ? word : `"${inString(word)}"`;
      texts.set(text, literal(text));
    }
  }
  return texts.size > MAX_LISTED ? null : [...texts.values()];
}

/** Each of the items once at most, in the order of the schema: `%distinct` could leave an item begun that no other may end. */
function listedOnce(words: readonly string[], a: ArrayAlternative, max: number, e: ValueWriter, canonical: boolean): string {
  const { gap, comma } = e.layout(canonical);
  const named = words.map((text) => ({ text, required: false }));
  const content = membersText({ named, free: null, min: a.min, max: Math.min(max, words.length), comma }, e.writer);
  if (content === null)
    throw new ConstraintError(`The keyword "uniqueItems" leaves ${words.length} different items where "minItems" asks for ${a.min}.`);
  return content === '' ? sequence('"["', gap, '"]"') : sequence('"["', gap, content, gap, '"]"');
}
