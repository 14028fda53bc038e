/** Two alternatives at once: exact, but for constants whose check cannot tell. */
import type { Bound } from '../value/numbers.js';
import {
  type Alternative,
  type ArrayAlternative,
  both,
  isUnrestricted,
  type NumberAlternative,
  type ObjectAlternative,
  type StringAlternative,
} from './alternatives.js';

const union = <T>(a: readonly T[], b: readonly T[]): readonly T[] => (b.length === 0 ? a : a.length === 0 ? b : [...new Set([...a, ...b])]);

/** null: surely no value. Constants are not handled here. */
export function intersectAlternatives(a: Alternative, b: Alternative): Alternative | null {
  if (isUnrestricted(a) && a.type === b.type) return b;
  if (isUnrestricted(b) && a.type === b.type) return a;
  if (a.type === 'string' && b.type === 'string') return intersectStrings(a, b);
  if (a.type === 'number' && b.type === 'number') return intersectNumbers(a, b);
  if (a.type === 'array' && b.type === 'array') return intersectArrays(a, b);
  if (a.type === 'object' && b.type === 'object') return intersectObjects(a, b);
  return null;
}

function intersectStrings(a: StringAlternative, b: StringAlternative): StringAlternative | null {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)];
  if (min > max) return null;
  const patterns = [...a.patterns, ...b.patterns.filter((p) => !a.patterns.some((q) => q.source === p.source))];
  const notPatterns = [...a.notPatterns, ...b.notPatterns.filter((p) => !a.notPatterns.some((q) => q.source === p.source))];
  if (patterns.some((p) => notPatterns.some((q) => q.source === p.source))) return null;
  return { type: 'string', min, max, patterns, notPatterns, formats: union(a.formats, b.formats), excluded: union(a.excluded, b.excluded) };
}

const tighter = (a: Bound | null, b: Bound | null, sign: 1 | -1): Bound | null => {
  if (a === null || b === null) return a ?? b;
  if (a.value === b.value) return a.exclusive ? a : b;
  return (a.value - b.value) * sign > 0 ? a : b;
};

function intersectNumbers(a: NumberAlternative, b: NumberAlternative): NumberAlternative | null {
  const [min, max] = [tighter(a.min, b.min, 1), tighter(a.max, b.max, -1)];
  if (min !== null && max !== null && (min.value > max.value || (min.value === max.value && (min.exclusive || max.exclusive)))) return null;
  if (a.integer !== null && b.integer !== null && a.integer !== b.integer) return null;
  return { type: 'number', integer: a.integer ?? b.integer, min, max, multiples: union(a.multiples, b.multiples) };
}

function intersectArrays(a: ArrayAlternative, b: ArrayAlternative): ArrayAlternative | null {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)];
  if (min > max) return null;
  const length = Math.max(a.prefix.length, b.prefix.length);
  const prefix = Array.from({ length }, (_, i) => both(a.prefix[i] ?? a.rest, b.prefix[i] ?? b.rest));
  return { type: 'array', prefix, rest: both(a.rest, b.rest), min, max, unique: a.unique || b.unique };
}

function intersectObjects(a: ObjectAlternative, b: ObjectAlternative): ObjectAlternative | null {
  const [min, max] = [Math.max(a.min, b.min), Math.min(a.max, b.max)];
  const required = union(a.required, b.required);
  const absent = union(a.absent, b.absent);
  if (min > max || required.length > max || required.some((key) => absent.includes(key))) return null;
  return { type: 'object', facets: union(a.facets, b.facets), required, absent, min, max, names: both(a.names, b.names) };
}
