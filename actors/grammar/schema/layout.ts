/**
 * An object's keys as the answer will have them: named ones in the order of the schema, then free ones by the patterns that they match.
 * A set of keys that is small becomes named keys, since `%distinct` could lead into keys that are all used up.
 */
import { ConstraintError } from '../error.js';
import { wordsOf } from '../pattern/expr.js';
import {
  type Alternative,
  ANY_STRING,
  both,
  type Conditions,
  conditionsOf,
  isNothing,
  type ObjectAlternative,
  type Pattern,
  type StringAlternative,
} from './alternatives.js';
import type { Expander } from './expand.js';
import { intersectAlternatives } from './intersect.js';
import { isEmptyLanguage, type Language, type Languages } from './language.js';
import { verdictOf } from './verdict.js';

export interface NamedKey {
  readonly key: string;
  readonly conditions: Conditions;
  readonly required: boolean;
}
export interface FreeKeys {
  readonly keys: Language;
  readonly conditions: Conditions;
}
export interface ObjectLayout {
  readonly named: readonly NamedKey[];
  readonly free: readonly FreeKeys[];
  /** Keys that free ones must not repeat. */
  readonly taken: readonly string[];
  readonly min: number;
  readonly max: number;
}

const MAX_PATTERNS = 6;
/** Key sets up to this size are listed. */
const MAX_LISTED = 64;

/** null: no such object. */
export function layoutOf(a: ObjectAlternative, e: Expander, languages: Languages): ObjectLayout | null {
  // Programs in JavaScript, validators among them, find these in every object.
  if (a.absent.some((key) => key in Object.prototype)) return null;
  const names = e.expand(a.names);
  const conditionsFor = (key: string): Conditions => a.facets.map((facet) => conditionsOf(facet, key, e.found(key))).reduce(both, []);
  const mayBeNamed = (key: string): boolean => names.list.some((n) => verdictOf(key, n, e) === 'yes');
  const free = a.facets.some((f) => isNothing(f.additional) && f.patterns.length === 0) ? [] : freeKeys(a, names.list, e);
  const listed = names.list.flatMap((n) => (n.type === 'constant' ? n.values.filter((v) => typeof v === 'string') : []));
  const open: FreeKeys[] = [];
  for (const { keys, conditions } of free) {
    const language = languages.of(keys);
    if (isEmptyLanguage(language)) continue;
    const words = language.expr === null ? null : wordsOf(language.expr, MAX_LISTED);
    if (words === null) open.push({ keys: language, conditions });
    else listed.push(...words);
  }
  const known = [...new Set([...a.facets.flatMap((f) => [...f.properties.keys()]), ...a.required, ...listed])];
  const named: NamedKey[] = [];
  for (const key of known) {
    e.meter.tick();
    const conditions = conditionsFor(key);
    const allowed = key !== '__proto__' && key.isWellFormed() && !a.absent.includes(key) && !isNothing(conditions) && mayBeNamed(key);
    const required = a.required.includes(key) || (key in Object.prototype && conditions.length > 0);
    if (!allowed && required) return null;
    if (allowed) named.push({ key, conditions, required });
  }
  return { named, free: open, taken: [...new Set([...known, ...a.absent, '__proto__'])], min: a.min, max: a.max };
}

/** Keys that are not named, by what is asked of their values: all combinations of the patterns that a key can match. */
function freeKeys(
  a: ObjectAlternative,
  names: readonly Alternative[],
  e: Expander,
): readonly { keys: StringAlternative; conditions: Conditions }[] {
  const patterns = [...new Map(a.facets.flatMap((f) => f.patterns.map((p) => [p.source, p as Pattern] as const))).values()];
  if (patterns.length > MAX_PATTERNS) {
    throw new ConstraintError(
      `The keyword "patternProperties" has ${patterns.length} patterns for one object; at most ${MAX_PATTERNS} are supported.`,
    );
  }
  const out: { keys: StringAlternative; conditions: Conditions }[] = [];
  for (let chosen = 0; chosen < 2 ** patterns.length; chosen++) {
    const matched = new Set(patterns.filter((_, i) => (chosen >> i) & 1).map((p) => p.source));
    const conditions = a.facets.map((facet) => conditionsOf(facet, '\u0000no such key', (p) => matched.has(p.source))).reduce(both, []);
    if (isNothing(conditions)) continue;
    const keys: StringAlternative = {
      ...ANY_STRING,
      patterns: patterns.filter((p) => matched.has(p.source)),
      notPatterns: patterns.filter((p) => !matched.has(p.source)),
    };
    for (const name of names) {
      e.meter.tick();
      const fit = patterns.length === 0 ? (name.type === 'string' ? name : null) : intersectAlternatives(keys, name);
      if (fit?.type === 'string') out.push({ keys: fit, conditions });
    }
  }
  return out;
}
