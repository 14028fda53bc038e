/**
 * What a schema allows, as a list of alternatives, each of one type of JSON with everything that is asked of it. Schemas of parts
 * (properties, items) stay conditions that are not looked into before the part is written: a schema may refer to itself.
 */
import type { Expr } from '../pattern/expr.js';
import type { Bound } from '../value/numbers.js';
import type { Schema } from './document.js';

/** One thing that must hold: a schema, or that it does not hold. */
export interface Condition {
  readonly schema: Schema;
  readonly negated: boolean;
}
/** All of them must hold; none means any value. */
export type Conditions = readonly Condition[];

export const ANYTHING: Conditions = [];

/** Pattern with its source, which names it. */
export interface Pattern {
  readonly source: string;
  readonly expr: Expr;
}

/** One of the values. */
export interface ConstantAlternative {
  readonly type: 'constant';
  readonly values: readonly unknown[];
}

export interface StringAlternative {
  readonly type: 'string';
  /** Code points. */
  readonly min: number;
  readonly max: number;
  /** Each is found in the text. */
  readonly patterns: readonly Pattern[];
  /** None is found in the text. */
  readonly notPatterns: readonly Pattern[];
  readonly formats: readonly string[];
  readonly excluded: readonly string[];
}

export interface NumberAlternative {
  readonly type: 'number';
  /** true: whole numbers only; false: none of them; null: all numbers. */
  readonly integer: boolean | null;
  readonly min: Bound | null;
  readonly max: Bound | null;
  readonly multiples: readonly number[];
}

export interface ArrayAlternative {
  readonly type: 'array';
  readonly prefix: readonly Conditions[];
  readonly rest: Conditions;
  readonly min: number;
  readonly max: number;
  readonly unique: boolean;
}

/** What one schema says of an object's properties: `additional` holds for keys that it neither names nor matches. */
export interface Facet {
  readonly properties: ReadonlyMap<string, Conditions>;
  readonly patterns: readonly (Pattern & { readonly conditions: Conditions })[];
  readonly additional: Conditions;
  /** From a schema that must not hold: its keys do not count as evaluated. */
  readonly negated: boolean;
}

export interface ObjectAlternative {
  readonly type: 'object';
  readonly facets: readonly Facet[];
  readonly required: readonly string[];
  readonly absent: readonly string[];
  readonly min: number;
  readonly max: number;
  /** Hold for every key, as a string. */
  readonly names: Conditions;
}

export type Alternative = ConstantAlternative | StringAlternative | NumberAlternative | ArrayAlternative | ObjectAlternative;

/** `exact`: every value that the conditions allow is in an alternative. Otherwise some were left out, so that emptiness proves nothing. */
export interface Alternatives {
  readonly list: readonly Alternative[];
  readonly exact: boolean;
}

export const ANY_STRING: StringAlternative = {
  type: 'string',
  min: 0,
  max: Infinity,
  patterns: [],
  notPatterns: [],
  formats: [],
  excluded: [],
};
export const ANY_NUMBER: NumberAlternative = { type: 'number', integer: null, min: null, max: null, multiples: [] };
export const ANY_ARRAY: ArrayAlternative = { type: 'array', prefix: [], rest: ANYTHING, min: 0, max: Infinity, unique: false };
export const ANY_OBJECT: ObjectAlternative = {
  type: 'object',
  facets: [],
  required: [],
  absent: [],
  min: 0,
  max: Infinity,
  names: ANYTHING,
};
export const ANY_VALUE: readonly Alternative[] = [
  { type: 'constant', values: [null, true, false] },
  ANY_NUMBER,
  ANY_STRING,
  ANY_ARRAY,
  ANY_OBJECT,
];

/** Of the kinds that ANY_VALUE has, unchanged. */
export const isUnrestricted = (a: Alternative): boolean => ANY_VALUE.includes(a);

export const isNothing = (conditions: Conditions): boolean =>
  conditions.some(({ schema, negated }) => (negated ? schema === true : schema === false));

/** Both lists' conditions, each once. */
export function both(a: Conditions, b: Conditions): Conditions {
  if (a.length === 0) return b;
  const fresh = b.filter((c) => !a.some((d) => d.schema === c.schema && d.negated === c.negated));
  return fresh.length === 0 ? a : [...a, ...fresh];
}

/** What the facet asks of the value of a key; `found` says whether a pattern is found in it. */
export function conditionsOf(facet: Facet, key: string, found: (pattern: Pattern) => boolean): Conditions {
  const named = facet.properties.get(key);
  const matched = facet.patterns.filter(found).map((p) => p.conditions);
  if (named === undefined && matched.length === 0) return facet.additional;
  return matched.reduce(both, named ?? ANYTHING);
}
