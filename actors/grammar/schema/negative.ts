/**
 * A schema that must not hold: some keyword of it fails. For keywords whose failure cannot be written surely, the values that fail only
 * there are left out.
 */
import {
  type Alternative,
  type Alternatives,
  ANY_ARRAY,
  ANY_NUMBER,
  ANY_OBJECT,
  ANY_STRING,
  ANY_VALUE,
  type Condition,
} from './alternatives.js';
import { isObject, type Schema, type SchemaObject } from './document.js';
import { EVERYTHING, type Expander, NO_VALUE, UNKNOWN } from './expand.js';
import { typesOf, valuesOf } from './positive.js';

type Failure = (value: never, schema: SchemaObject, e: Expander) => Alternatives;

const exactly = (...list: readonly Alternative[]): Alternatives => ({ list, exact: true });
const not = (schema: Schema): readonly Condition[] => [{ schema, negated: true }];
const must = (schema: Schema): readonly Condition[] => [{ schema, negated: false }];

/** How a keyword fails, of those that can be written. */
const failures: Readonly<Record<string, Failure>> = {
  $ref: (ref: string, schema, e) => e.fails(e.document.resolve(ref, schema)),
  allOf: (parts: readonly Schema[], _, e) => e.union(parts.map((p) => e.fails(p))),
  anyOf: (parts: readonly Schema[], _, e) => parts.reduce((all, p) => e.conjoin(all, e.fails(p)), EVERYTHING),
  oneOf: (parts: readonly Schema[], _, e) => ({ ...parts.reduce((all, p) => e.conjoin(all, e.fails(p)), EVERYTHING), exact: false }),
  not: (part: Schema, _, e) => e.holds(part),
  if: (test: Schema, schema, e) => {
    const branch = (key: string): Alternatives => (schema[key] === undefined ? NO_VALUE : e.fails(schema[key] as Schema));
    return e.union([e.conjoin(e.holds(test), branch('then')), e.conjoin(e.fails(test), branch('else'))]);
  },
  type: (_: unknown, schema) => {
    const types = typesOf(schema);
    const constants = [...(types.has('null') ? [] : [null]), ...(types.has('boolean') ? [] : [true, false])];
    const rest = ANY_VALUE.flatMap((a): readonly Alternative[] => {
      if (a.type === 'constant') return constants.length === 0 ? [] : [{ type: 'constant', values: constants }];
      if (a.type === 'number' && types.has('integer') && !types.has('number')) return [{ ...ANY_NUMBER, integer: false }];
      return types.has(a.type) ? [] : [a];
    });
    return exactly(...rest);
  },
  enum: (_: unknown, schema, e) => otherThan(valuesOf(schema, e) ?? []),
  const: (_: unknown, schema, e) => otherThan(valuesOf(schema, e) ?? []),
  minimum: (value: number) => exactly({ ...ANY_NUMBER, max: { value, exclusive: true } }),
  maximum: (value: number) => exactly({ ...ANY_NUMBER, min: { value, exclusive: true } }),
  exclusiveMinimum: (value: number) => exactly({ ...ANY_NUMBER, max: { value, exclusive: false } }),
  exclusiveMaximum: (value: number) => exactly({ ...ANY_NUMBER, min: { value, exclusive: false } }),
  multipleOf: (value: number) => (value === 1 ? exactly({ ...ANY_NUMBER, integer: false }) : UNKNOWN),
  minLength: (n: number) => (n === 0 ? NO_VALUE : exactly({ ...ANY_STRING, max: n - 1 })),
  maxLength: (n: number) => exactly({ ...ANY_STRING, min: n + 1 }),
  pattern: (source: string, schema, e) =>
    exactly({ ...ANY_STRING, notPatterns: [e.patterns.read(source, [...e.document.pathOf(schema), 'pattern'])] }),
  minItems: (n: number) => (n === 0 ? NO_VALUE : exactly({ ...ANY_ARRAY, max: n - 1 })),
  maxItems: (n: number) => exactly({ ...ANY_ARRAY, min: n + 1 }),
  items: (items: Schema | readonly Schema[], schema) =>
    isList(items) || schema['prefixItems'] !== undefined
      ? UNKNOWN
      : { list: [{ ...ANY_ARRAY, min: 1, prefix: [not(items)] }], exact: false },
  contains: (part: Schema, schema) =>
    schema['minContains'] === undefined && schema['maxContains'] === undefined ? exactly({ ...ANY_ARRAY, rest: not(part) }) : UNKNOWN,
  minProperties: (n: number) => (n === 0 ? NO_VALUE : exactly({ ...ANY_OBJECT, max: n - 1 })),
  maxProperties: (n: number) => exactly({ ...ANY_OBJECT, min: n + 1 }),
  required: (names: readonly string[]) => exactly(...names.map((name) => ({ ...ANY_OBJECT, absent: [name] }))),
  properties: (named: Readonly<Record<string, Schema>>) =>
    exactly(
      ...Object.entries(named).flatMap(([name, part]) =>
        part === true
          ? []
          : [
              {
                ...ANY_OBJECT,
                required: [name],
                facets: [
                  { properties: new Map([[name, part === false ? [] : not(part)]]), patterns: [], additional: must(true), negated: true },
                ],
              },
            ],
      ),
    ),
};

/** Keywords whose failure has many alternatives, and which two kinds of objects seldom differ in alone. */
const dear = new Set(['properties', 'items', 'contains']);
/** Keywords that cannot fail, or fail with another one. */
const mute = new Set([
  'title',
  'description',
  'default',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  '$schema',
  '$id',
  '$comment',
  '$anchor',
  '$defs',
  'definitions',
  'nullable',
  'then',
  'else',
  'minContains',
  'maxContains',
]);

export function negative(schema: SchemaObject, e: Expander, cheap: boolean): Alternatives {
  const parts = Object.keys(schema).flatMap((key): readonly Alternatives[] => {
    if (mute.has(key) || (key === 'const' && schema['enum'] !== undefined)) return [];
    const failure = failures[key];
    if (failure === undefined || (cheap && dear.has(key))) return [UNKNOWN];
    return [failure(schema[key] as never, schema, e)]; // checkKeywords has seen that the value fits the keyword
  });
  return e.union(parts);
}

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value);

/** More numbers than this are not cut out of the others one by one. */
const MAX_CUTS = 64;

/** All values but these. */
function otherThan(values: readonly unknown[]): Alternatives {
  const numbers = [...new Set(values.filter((v) => typeof v === 'number'))].sort((a, b) => a - b);
  const excluded = values.filter((v) => typeof v === 'string');
  const list = ANY_VALUE.flatMap((a): readonly Alternative[] => {
    if (a.type === 'constant') {
      const kept = a.values.filter((v) => !values.includes(v));
      return kept.length === 0 ? [] : [{ type: 'constant', values: kept }];
    }
    if (a.type === 'string') return [excluded.length === 0 ? a : { ...ANY_STRING, excluded }];
    if (a.type === 'number') return numbers.length === 0 ? [a] : numbers.length > MAX_CUTS ? [] : gapsBetween(numbers);
    return values.some((v) => (a.type === 'array' ? isList(v) : isObject(v))) ? [] : [a];
  });
  return { list, exact: numbers.length <= MAX_CUTS && !values.some((v) => typeof v === 'object' && v !== null) };
}

const gapsBetween = (sorted: readonly number[]): readonly Alternative[] =>
  [null, ...sorted].map((value, i) => {
    const next = sorted[i];
    return {
      ...ANY_NUMBER,
      min: value === null ? null : { value, exclusive: true },
      max: next === undefined ? null : { value: next, exclusive: true },
    };
  });
