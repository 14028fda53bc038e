/** What a schema's own keywords say of objects. */
import { type Alternative, ANY_OBJECT, ANYTHING, type Conditions, type Facet } from './alternatives.js';
import type { Schema, SchemaObject } from './document.js';
import type { Expander } from './expand.js';

const KEYS = ['additionalProperties', 'maxProperties', 'minProperties', 'patternProperties', 'properties', 'propertyNames', 'required'];
const must = (schema: unknown): Conditions =>
  schema === undefined || schema === true ? ANYTHING : [{ schema: schema as Schema, negated: false }];

export function objectOf(schema: SchemaObject, e: Expander): readonly Alternative[] {
  if (!KEYS.some((key) => schema[key] !== undefined)) return [ANY_OBJECT];
  const path = [...e.document.pathOf(schema), 'patternProperties'];
  const properties = Object.entries((schema['properties'] ?? {}) as Readonly<Record<string, Schema>>);
  const patterns = Object.entries((schema['patternProperties'] ?? {}) as Readonly<Record<string, Schema>>);
  const facet: Facet = {
    properties: new Map(properties.map(([key, value]) => [key, must(value)])),
    patterns: patterns.map(([source, value]) => ({ ...e.patterns.read(source, [...path, source]), conditions: must(value) })),
    additional: must(schema['additionalProperties']),
    negated: false,
  };
  const required = [...new Set((schema['required'] ?? []) as readonly string[])];
  const [min, max] = [(schema['minProperties'] as number | undefined) ?? 0, (schema['maxProperties'] as number | undefined) ?? Infinity];
  if (min > max || required.length > max) return [];
  const facets = properties.length + patterns.length > 0 || facet.additional !== ANYTHING ? [facet] : [];
  return [{ ...ANY_OBJECT, facets, required, min, max, names: must(schema['propertyNames']) }];
}
