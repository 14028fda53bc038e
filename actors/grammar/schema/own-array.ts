/**
 * What a schema's own keywords say of arrays. `contains` asks for a place: one alternative for each place where the matching items may
 * begin among the items that have schemas of their own, and behind those at once.
 */
import { type Alternative, ANY_ARRAY, ANYTHING, type ArrayAlternative, both, type Conditions } from './alternatives.js';
import type { Schema, SchemaObject } from './document.js';

const KEYS = ['additionalItems', 'contains', 'items', 'maxItems', 'minItems', 'prefixItems', 'uniqueItems'];
const must = (schema: unknown): Conditions =>
  schema === undefined || schema === true ? ANYTHING : [{ schema: schema as Schema, negated: false }];

export function arraysOf(schema: SchemaObject): readonly Alternative[] {
  if (!KEYS.some((key) => schema[key] !== undefined)) return [ANY_ARRAY];
  const { items, prefixItems, additionalItems } = schema;
  const prefix = ((Array.isArray(items) ? items : (prefixItems ?? [])) as readonly Schema[]).map(must);
  const rest = must(Array.isArray(items) ? additionalItems : items);
  const [min, max] = [(schema['minItems'] as number | undefined) ?? 0, (schema['maxItems'] as number | undefined) ?? Infinity];
  const own: ArrayAlternative = { type: 'array', prefix, rest, min, max, unique: schema['uniqueItems'] === true };
  return (schema['contains'] === undefined ? [own] : containing(schema, own)).filter((a) => a.min <= a.max);
}

function containing(schema: SchemaObject, own: ArrayAlternative): readonly ArrayAlternative[] {
  const [least, most] = [(schema['minContains'] as number | undefined) ?? 1, schema['maxContains'] as number | undefined];
  if (least === 0 && most === undefined) return [own];
  if (most !== undefined && most < least) return [];
  const contained = must(schema['contains']);
  // Where the number is limited, the others must not match.
  const others: Conditions = most === undefined ? ANYTHING : [{ schema: schema['contains'] as Schema, negated: true }];
  const length = Math.min(least, 64);
  return Array.from({ length: least === 0 ? 1 : own.prefix.length + 1 }, (_, offset): ArrayAlternative => {
    const size = Math.max(own.prefix.length, offset + length);
    const prefix = Array.from({ length: size }, (_, i) =>
      both(own.prefix[i] ?? own.rest, i >= offset && i < offset + length ? contained : others),
    );
    const rest = both(own.rest, least > length ? contained : others);
    return { ...own, prefix, rest, min: Math.max(own.min, offset + least) };
  });
}
