/** An object as GBNF: named keys in their order, then free ones, none twice. */
import { ConstraintError } from '../error.js';
import { membersText } from '../text/members.js';
import { anyOf, literal, sequence } from '../text/writer.js';
import type { ObjectAlternative } from './alternatives.js';
import type { FreeKeys, ObjectLayout } from './layout.js';
import type { ValueWriter } from './value-writer.js';

/** The alternative must be possible. */
export function objectText(a: ObjectAlternative, e: ValueWriter, canonical: boolean): string {
  const { writer, parts } = e;
  const layout = parts.layout(a);
  if (layout === null) throw new Error('an object without keys that fit was to be written');
  const { gap, comma, colon } = e.layout(canonical);
  const named = layout.named
    .filter((n) => parts.isInhabited(n.conditions))
    .map(({ key, conditions, required }) => ({
      required,
      text: sequence(literal(`${JSON.stringify(key)}:`), colon, e.value(conditions, canonical)),
    }));
  const free = freeKeysOf(layout, named.length, e, canonical);
  const pairs = free.map(({ keys, conditions }) => {
    const key = e.string(keys, true);
    return sequence(
      canonical
        ? key
        : writer.distinct(
            layout.taken.map((k) => JSON.stringify(k)),
            key,
          ),
      '":"',
      colon,
      e.value(conditions, canonical),
    );
  });
  const { maxRepeat } = writer.meter.limits;
  const max = canonical && pairs.length > 0 ? Math.min(layout.max, 1) : cap(layout.max, named.length + maxRepeat);
  if (layout.min > named.length + maxRepeat)
    throw new ConstraintError(
      `The keyword "minProperties" asks for ${layout.min} properties, more than structured_output.max_repeat = ${maxRepeat}.`,
    );
  const content = membersText({ named, free: pairs.length === 0 ? null : anyOf(pairs), min: layout.min, max, comma }, writer);
  if (content === null)
    throw new ConstraintError('The keyword "uniqueItems" is not supported for objects that need several properties without names.');
  const body = content === '' ? sequence('"{"', gap, '"}"') : sequence('"{"', gap, anyOf([content]), gap, '"}"');
  return pairs.length > 0 && !canonical ? writer.scope(body) : body;
}

const cap = (max: number, most: number): number => (max === Infinity ? max : Math.min(max, most));

/**
 * Where equal objects must be equal bytes, the order of keys must be given: one free key at most, none beside named ones.
 */
function freeKeysOf(layout: ObjectLayout, numNamed: number, e: ValueWriter, canonical: boolean): readonly FreeKeys[] {
  const free = layout.free.filter((f) => e.parts.isInhabited(f.conditions) || f.conditions.length === 0);
  return canonical && numNamed > 0 ? [] : free;
}
