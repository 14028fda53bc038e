/** A schema that must hold. */
import { refusal } from '../error.js';
import { isStringFormat, numberFormats } from '../value/formats.js';
import { identity } from '../value/literal.js';
import { type Alternative, type Alternatives, ANY_OBJECT, ANY_VALUE, ANYTHING } from './alternatives.js';
import type { Schema, SchemaObject } from './document.js';
import { isObject } from './document.js';
import { EVERYTHING, type Expander, NO_VALUE } from './expand.js';
import { TYPES, type TypeName } from './keywords.js';
import { arraysOf } from './own-array.js';
import { objectOf } from './own-object.js';
import { numberOf, stringOf } from './own-scalar.js';

const NO_TYPES: readonly TypeName[] = TYPES;

/** The types that `type` and `nullable` name. */
export function typesOf(schema: SchemaObject): ReadonlySet<TypeName> {
  const type = schema['type'] as TypeName | readonly TypeName[] | undefined; // checkKeywords has seen it
  const names = type === undefined ? NO_TYPES : [type].flat();
  return new Set(type !== undefined && schema['nullable'] === true ? [...names, 'null' as const] : names);
}

/** The alternatives of the keywords that speak of one type each. */
function ownAlternatives(schema: SchemaObject, e: Expander): readonly Alternative[] {
  const path = e.document.pathOf(schema);
  const format = schema['format'] as string | undefined;
  if (format !== undefined && !isStringFormat(format) && !Object.hasOwn(numberFormats, format)) {
    throw refusal('format', path, `asks for ${JSON.stringify(format).slice(0, 60)}, a format that is not known`);
  }
  const types = typesOf(schema);
  const list: Alternative[] = [];
  const constants = [...(types.has('null') ? [null] : []), ...(types.has('boolean') ? [true, false] : [])];
  if (constants.length === 3) list.push(ANY_VALUE[0]!);
  else if (constants.length > 0) list.push({ type: 'constant', values: constants });
  if (types.has('number') || types.has('integer')) list.push(...numberOf(schema, !types.has('number')));
  if (types.has('string')) list.push(...stringOf(schema, e));
  if (types.has('array')) list.push(...arraysOf(schema));
  if (types.has('object')) list.push(...objectOf(schema, e));
  return list;
}

/** Everything but objects, and these objects. */
const forObjects = (objects: readonly Alternative[]): readonly Alternative[] => [
  ...ANY_VALUE.filter((a) => a.type !== 'object'),
  ...objects,
];

export function positive(schema: SchemaObject, e: Expander): Alternatives {
  // The places of `contains` are only those where it is easily written.
  let all: Alternatives = { list: ownAlternatives(schema, e), exact: schema['contains'] === undefined };
  if (all.list.length === ANY_VALUE.length && all.list.every((a, i) => a === ANY_VALUE[i])) all = EVERYTHING;
  const add = (more: Alternatives): void => {
    all = e.conjoin(all, more);
  };
  const schemas = (key: string): readonly Schema[] => (schema[key] ?? []) as readonly Schema[]; // checkKeywords has seen it
  const values = valuesOf(schema, e);
  if (values !== null) add({ list: [{ type: 'constant', values }], exact: true });
  if (schema['$ref'] !== undefined) add(e.holds(e.document.resolve(schema['$ref'], schema)));
  for (const part of schemas('allOf')) add(e.holds(part));
  if (schema['anyOf'] !== undefined) add(e.union(schemas('anyOf').map(e.holds)));
  if (schema['not'] !== undefined) add(e.fails(schema['not'] as Schema));
  if (schema['if'] !== undefined) add(conditional(schema, e));
  for (const dependency of dependenciesOf(schema, e)) add(dependency);
  if (schema['oneOf'] !== undefined) all = exactlyOne(schemas('oneOf'), all, e);
  return schema['unevaluatedProperties'] === undefined ? all : closed(all, schema['unevaluatedProperties'] as Schema);
}

/** The values of `enum` and `const`, or null where neither is. */
export function valuesOf(schema: SchemaObject, e: Expander): readonly unknown[] | null {
  const members = schema['enum'] as readonly unknown[] | undefined;
  const limit = e.meter.limits.maxEnum;
  if (members !== undefined && members.length > limit) {
    throw refusal('enum', e.document.pathOf(schema), `has ${members.length} members, more than structured_output.max_enum = ${limit}`);
  }
  const unique = members === undefined ? null : [...new Map(members.map((v) => [identity(v), v])).values()];
  if (!Object.hasOwn(schema, 'const')) return unique;
  const constant = schema['const'];
  return unique === null || unique.some((v) => identity(v) === identity(constant)) ? [constant] : [];
}

function conditional(schema: SchemaObject, e: Expander): Alternatives {
  const [test, then, otherwise] = ['if', 'then', 'else'].map((key) => schema[key] as Schema | undefined);
  if (test === undefined || (then === undefined && otherwise === undefined)) return EVERYTHING;
  return e.union([e.conjoin(e.holds(test), e.holds(then ?? true)), e.conjoin(e.fails(test), e.holds(otherwise ?? true))]);
}

/** One entry for each property on which others, or a schema, depend. */
function dependenciesOf(schema: SchemaObject, e: Expander): readonly Alternatives[] {
  const entries = ['dependencies', 'dependentRequired', 'dependentSchemas'].flatMap((key) =>
    isObject(schema[key]) ? Object.entries(schema[key]) : [],
  );
  return entries.map(([key, needs]) => {
    const without: Alternatives = { list: forObjects([{ ...ANY_OBJECT, absent: [key] }]), exact: true };
    const required = Array.isArray(needs) ? [key, ...(needs as string[])] : [key];
    const present: Alternatives = { list: [{ ...ANY_OBJECT, required: [...new Set(required)] }], exact: true };
    return e.union([without, Array.isArray(needs) ? present : e.conjoin(present, e.holds(needs as Schema))]);
  });
}

/** Values of exactly one of the schemas: of each without those of every other that it may share values with. */
function exactlyOne(options: readonly Schema[], base: Alternatives, e: Expander): Alternatives {
  if (options.length === 1) return e.conjoin(base, e.holds(options[0]!));
  const each = options.map((option) => e.conjoin(base, e.holds(option)));
  const kept = each.map((own, i) =>
    options.reduce((rest, other, j) => {
      if (i === j || rest.list.length === 0 || e.excludes(rest, each[j]!)) return rest;
      const cheap = e.conjoin(rest, e.fails(other, true));
      return cheap.list.some((a) => !e.isSurelyEmpty(a)) ? { ...cheap, exact: false } : e.conjoin(rest, e.fails(other));
    }, own),
  );
  return kept.every((k) => k.list.length === 0) && each.some((k) => k.list.length > 0) ? { ...NO_VALUE, exact: false } : e.union(kept);
}

/** `unevaluatedProperties`: what no part of the schema has named must fit it. */
function closed(all: Alternatives, rest: Schema): Alternatives {
  const list = all.list.map((a): Alternative => {
    if (a.type !== 'object') return a;
    const seen = a.facets.filter((f) => !f.negated);
    const properties = new Map(seen.flatMap((f) => [...f.properties.keys()].map((key) => [key, ANYTHING] as const)));
    const patterns = seen.flatMap((f) => f.patterns.map((p) => ({ ...p, conditions: ANYTHING })));
    return { ...a, facets: [...a.facets, { properties, patterns, additional: [{ schema: rest, negated: false }], negated: false }] };
  });
  return { list, exact: false };
}
