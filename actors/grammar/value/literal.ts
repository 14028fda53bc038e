/** A value that is written in a schema, as the answer spells it. */
import type { Layout } from '../text/space.js';
import { type GrammarWriter, literal, sequence } from '../text/writer.js';

/** A number as JSON text without what other spellings could add. */
export const numberText = (value: number): string => (Object.is(value, -0) ? '0' : String(value));

export function literalValue(value: unknown, layout: Layout, w: GrammarWriter): string {
  w.meter.tick();
  if (Array.isArray(value)) {
    if (value.length === 0) return literal('[]');
    const items = value.flatMap((item, i) => [...(i === 0 ? [] : [layout.comma]), literalValue(item, layout, w)]);
    return sequence('"["', layout.gap, ...items, layout.gap, '"]"');
  }
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value);
    if (entries.length === 0) return literal('{}');
    const pairs = entries.flatMap(([key, item], i) => [
      ...(i === 0 ? [] : [layout.comma]),
      literal(`${JSON.stringify(key)}:`),
      layout.colon,
      literalValue(item, layout, w),
    ]);
    return sequence('"{"', layout.gap, ...pairs, layout.gap, '"}"');
  }
  return literal(typeof value === 'number' ? numberText(value) : JSON.stringify(value));
}

/** Equal exactly for equal JSON values. */
export function identity(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(identity).join()}]`;
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([k, v]) => `${JSON.stringify(k)}:${identity(v)}`).join()}}`;
  }
  return typeof value === 'number' ? numberText(value) : (JSON.stringify(value) ?? 'undefined');
}
