/** What a schema's own keywords say of numbers and of strings. */
import { numberFormats } from '../value/formats.js';
import type { Bound } from '../value/numbers.js';
import { type Alternative, ANY_NUMBER, ANY_STRING } from './alternatives.js';
import type { SchemaObject } from './document.js';
import type { Expander } from './expand.js';
import { intersectAlternatives } from './intersect.js';

const asNumber = (value: unknown): number | null => (typeof value === 'number' ? value : null);

function bound(schema: SchemaObject, key: string, exclusive: boolean): Bound | null {
  const value = asNumber(schema[key]);
  return value === null ? null : { value, exclusive };
}

export function numberOf(schema: SchemaObject, integer: boolean): readonly Alternative[] {
  const format = numberFormats[String(schema['format'])];
  const parts: Alternative[] = [
    { ...ANY_NUMBER, integer: integer ? true : null, multiples: typeof schema['multipleOf'] === 'number' ? [schema['multipleOf']] : [] },
    { ...ANY_NUMBER, min: bound(schema, 'minimum', false), max: bound(schema, 'maximum', false) },
    { ...ANY_NUMBER, min: bound(schema, 'exclusiveMinimum', true), max: bound(schema, 'exclusiveMaximum', true) },
  ];
  if (format !== undefined) {
    const { min, max } = format;
    parts.push({
      ...ANY_NUMBER,
      integer: format.integer ? true : null,
      min: min === undefined ? null : { value: min, exclusive: false },
      max: max === undefined ? null : { value: max, exclusive: false },
    });
  }
  return joined(
    parts.filter((p) => p.type === 'number' && (p.integer !== null || p.min !== null || p.max !== null || p.multiples.length > 0)),
    ANY_NUMBER,
  );
}

export function stringOf(schema: SchemaObject, e: Expander): readonly Alternative[] {
  const { minLength, maxLength, pattern, format } = schema;
  const formats = typeof format === 'string' && !Object.hasOwn(numberFormats, format) ? [format] : [];
  if (minLength === undefined && maxLength === undefined && pattern === undefined && formats.length === 0) return [ANY_STRING];
  const path = [...e.document.pathOf(schema), 'pattern'];
  const patterns = typeof pattern === 'string' ? [e.patterns.read(pattern, path)] : [];
  const [min, max] = [asNumber(minLength) ?? 0, asNumber(maxLength) ?? Infinity];
  return min > max ? [] : [{ ...ANY_STRING, min, max, patterns, formats }];
}

/** All parts at once; none where they exclude each other. */
function joined(parts: readonly Alternative[], start: Alternative): readonly Alternative[] {
  let all = start;
  for (const part of parts) {
    const both = intersectAlternatives(all, part);
    if (both === null) return [];
    all = both;
  }
  return [all];
}
