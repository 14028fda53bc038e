/** Whether a value that is written in a schema fits an alternative; for constants and names of properties. */

import type { Meter } from '../limits.js';
import { seq } from '../pattern/expr.js';
import { formatExpr } from '../value/formats.js';
import { identity } from '../value/literal.js';
import {
  type Alternative,
  type Alternatives,
  type ArrayAlternative,
  type Condition,
  type Conditions,
  conditionsOf,
  type NumberAlternative,
  type ObjectAlternative,
  type Pattern,
  type StringAlternative,
} from './alternatives.js';
import { isObject } from './document.js';
import type { PatternBook } from './pattern-book.js';

/** What is asked here of the expander. */
export interface Reading {
  readonly meter: Meter;
  readonly patterns: PatternBook;
  readonly one: (condition: Condition) => Alternatives;
  readonly found: (key: string) => (pattern: Pattern) => boolean;
}

export type Verdict = 'yes' | 'no' | 'unknown';

const all = (verdicts: readonly Verdict[]): Verdict => (verdicts.includes('no') ? 'no' : verdicts.includes('unknown') ? 'unknown' : 'yes');
const when = (yes: boolean): Verdict => (yes ? 'yes' : 'no');

export function verdictOf(value: unknown, a: Alternative, e: Reading): Verdict {
  e.meter.tick();
  switch (a.type) {
    case 'constant':
      return when(a.values.some((v) => identity(v) === identity(value)));
    case 'string':
      return typeof value === 'string' ? ofString(value, a, e) : 'no';
    case 'number':
      return when(typeof value === 'number' && fitsNumber(value, a));
    case 'array':
      return Array.isArray(value) ? ofArray(value, a, e) : 'no';
    case 'object':
      return isObject(value) ? ofObject(value, a, e) : 'no';
  }
}

function ofConditions(value: unknown, conditions: Conditions, e: Reading): Verdict {
  return all(
    conditions.map((c: Condition) => {
      const found = e.one(c);
      const verdicts = found.list.map((a) => verdictOf(value, a, e));
      return verdicts.includes('yes') ? 'yes' : verdicts.includes('unknown') || !found.exact ? 'unknown' : 'no';
    }),
  );
}

/** Half of a surrogate pair is a character for a validator's patterns and none for ours, so that they say nothing of a text with one. */
function ofString(value: string, a: StringAlternative, e: Reading): Verdict {
  const length = [...value].length;
  if (length < a.min || length > a.max || a.excluded.includes(value)) return 'no';
  if (a.patterns.length + a.notPatterns.length > 0 && !value.isWellFormed()) return 'unknown';
  if (!a.patterns.every((p) => e.patterns.finds(p.expr, value)) || a.notPatterns.some((p) => e.patterns.finds(p.expr, value))) return 'no';
  // A format's expression matches only a part of the format.
  return a.formats.every((name) => {
    const expr = formatExpr(name);
    return expr === null || e.patterns.finds(anchored(expr), value);
  })
    ? 'yes'
    : 'unknown';
}

const anchoredExprs = new WeakMap<object, ReturnType<typeof seq>>();
function anchored(expr: NonNullable<ReturnType<typeof formatExpr>>): ReturnType<typeof seq> {
  const known = anchoredExprs.get(expr);
  if (known !== undefined) return known;
  const made = seq({ op: 'start' }, expr, { op: 'end' });
  anchoredExprs.set(expr, made);
  return made;
}

export function fitsNumber(value: number, a: NumberAlternative): boolean {
  if (a.integer !== null && Number.isInteger(value) !== a.integer) return false;
  if (a.min !== null && (a.min.exclusive ? value <= a.min.value : value < a.min.value)) return false;
  if (a.max !== null && (a.max.exclusive ? value >= a.max.value : value > a.max.value)) return false;
  return a.multiples.every((m) => Number.isInteger(value / m));
}

function ofArray(value: readonly unknown[], a: ArrayAlternative, e: Reading): Verdict {
  if (value.length < a.min || value.length > a.max) return 'no';
  if (a.unique && new Set(value.map(identity)).size < value.length) return 'no';
  return all(value.map((item, i) => ofConditions(item, a.prefix[i] ?? a.rest, e)));
}

function ofObject(value: Readonly<Record<string, unknown>>, a: ObjectAlternative, e: Reading): Verdict {
  const keys = Object.keys(value);
  if (keys.length < a.min || keys.length > a.max) return 'no';
  if (asksOfInherited(value, a)) return 'unknown';
  if (!a.required.every((key) => Object.hasOwn(value, key)) || a.absent.some((key) => Object.hasOwn(value, key))) return 'no';
  return all(
    keys.flatMap((key) => [
      ofConditions(key, a.names, e),
      ...a.facets.map((facet) =>
        facet.patterns.length > 0 && !key.isWellFormed() ? 'unknown' : ofConditions(value[key], conditionsOf(facet, key, e.found(key)), e),
      ),
    ]),
  );
}

/** Validators in JavaScript find the members of Object.prototype in every object, JSON Schema only what is written: the two may differ. */
function asksOfInherited(value: object, { required, absent, facets }: ObjectAlternative): boolean {
  const inherited = (key: string): boolean => key in Object.prototype && !Object.hasOwn(value, key);
  const asked = facets.flatMap((facet) => [...facet.properties].filter(([, conditions]) => conditions.length > 0).map(([key]) => key));
  return [...required, ...absent, ...asked].some(inherited);
}
