/**
 * From conditions to alternatives. A schema is read at most twice, as what must hold and as what must not; both ways may leave values out
 * where they cannot be told (`exact` then says so), but never let one in: whatever is built from alternatives is allowed.
 */
import { ConstraintError, refusal } from '../error.js';
import type { Meter } from '../limits.js';
import { identity } from '../value/literal.js';
import {
  type Alternative,
  type Alternatives,
  ANY_VALUE,
  type Condition,
  type Conditions,
  type ConstantAlternative,
  conditionsOf,
  isNothing,
  type Pattern,
} from './alternatives.js';
import type { Schema, SchemaDocument, SchemaObject } from './document.js';
import { intersectAlternatives } from './intersect.js';
import { checkKeywords } from './keywords.js';
import { PatternBook } from './pattern-book.js';
import { type Reading, verdictOf } from './verdict.js';

/** How a schema that is an object is read; the two ways call back for the schemas inside. */
export interface Reader {
  readonly positive: (schema: SchemaObject, expander: Expander) => Alternatives;
  readonly negative: (schema: SchemaObject, expander: Expander, cheap: boolean) => Alternatives;
}

/** Alternatives of one part; more are a schema whose combinations explode. */
const MAX_ALTERNATIVES = 2000;
/** Levels that are looked into to find that two alternatives exclude each other. */
const MAX_LOOK = 3;

/** A schema that is being expanded was met again inside one of its parts: nothing is known of it yet. */
class InProgress extends Error {}

export const EVERYTHING: Alternatives = { list: ANY_VALUE, exact: true };
export const NO_VALUE: Alternatives = { list: [], exact: true };
/** Nothing that could be said surely. */
export const UNKNOWN: Alternatives = { list: [], exact: false };

export class Expander {
  readonly document: SchemaDocument;
  readonly meter: Meter;
  readonly patterns: PatternBook;
  readonly #reader: Reader;
  readonly #numbers = new Map<Schema, number>();
  readonly #known = new Map<string, Alternatives>();
  /** What is being expanded, with the level of looking inside parts at which it was begun. */
  readonly #open = new Map<string, number>();
  readonly #reading: Reading;
  #level = 0;

  constructor(document: SchemaDocument, reader: Reader, meter: Meter) {
    this.document = document;
    this.meter = meter;
    this.patterns = new PatternBook(meter);
    this.#reader = reader;
    this.#reading = { meter, patterns: this.patterns, one: (c) => this.one(c), found: this.found };
  }

  /** Equal for conditions that say the same. */
  keyOf(conditions: Conditions): string {
    return conditions
      .map(({ schema, negated }) => {
        let n = this.#numbers.get(schema);
        if (n === undefined) {
          n = this.#numbers.size;
          this.#numbers.set(schema, n);
        }
        return `${negated ? '!' : ''}${n}`;
      })
      .sort()
      .join();
  }

  /** All conditions at once. */
  expand(conditions: Conditions): Alternatives {
    if (conditions.length === 1) return this.one(conditions[0]!);
    const key = this.keyOf(conditions);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const found = conditions.reduce((all, c) => this.conjoin(all, this.one(c)), EVERYTHING);
    this.#known.set(key, found);
    return found;
  }

  /** The schema holds, or does not; `cheap` leaves out what makes many alternatives. */
  one({ schema, negated }: Condition, cheap = false): Alternatives {
    if (typeof schema === 'boolean') return schema === negated ? NO_VALUE : EVERYTHING;
    const key = `${this.keyOf([{ schema, negated }])}${cheap ? '~' : ''}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const begun = this.#open.get(key);
    if (begun === this.#level)
      throw new ConstraintError('A schema refers to itself without a property or an item in between.', this.document.pathOf(schema));
    if (begun !== undefined) throw new InProgress();
    this.#open.set(key, this.#level);
    try {
      checkKeywords(schema, this.document.pathOf(schema));
      const found = negated ? this.#reader.negative(schema, this, cheap) : this.#reader.positive(schema, this);
      if (found.list.length > MAX_ALTERNATIVES) throw this.#tooMany(schema);
      this.#known.set(key, found);
      return found;
    } finally {
      this.#open.delete(key);
    }
  }

  holds = (schema: Schema): Alternatives => this.one({ schema, negated: false });
  fails = (schema: Schema, cheap = false): Alternatives => this.one({ schema, negated: true }, cheap);

  /** Values of both. */
  conjoin(a: Alternatives, b: Alternatives): Alternatives {
    if (a === EVERYTHING) return b;
    if (b === EVERYTHING) return a;
    const list: Alternative[] = [];
    let exact = a.exact && b.exact;
    for (const x of a.list) {
      for (const y of b.list) {
        this.meter.tick();
        const found =
          x.type === 'constant'
            ? this.#select(x, y)
            : y.type === 'constant'
              ? this.#select(y, x)
              : { value: intersectAlternatives(x, y), exact: true };
        exact &&= found.exact;
        if (found.value !== null) list.push(found.value);
        if (list.length > MAX_ALTERNATIVES) throw this.#tooMany(null);
      }
    }
    return { list: mergeConstants(list), exact };
  }

  union(parts: readonly Alternatives[]): Alternatives {
    return { list: mergeConstants(parts.flatMap((p) => p.list)), exact: parts.every((p) => p.exact) };
  }

  /** Whether no value is in both, as far as it can be seen in the first levels. False proves nothing. */
  excludes(a: Alternatives, b: Alternatives): boolean {
    const overlap = this.conjoin(a, b);
    return overlap.exact && overlap.list.every((x) => this.isSurelyEmpty(x));
  }

  isSurelyEmpty(a: Alternative): boolean {
    if (this.#level >= MAX_LOOK) return false;
    this.#level++;
    try {
      return this.#necessaryParts(a).some((conditions) => {
        if (isNothing(conditions)) return true;
        const found = this.expand(conditions);
        return found.exact && found.list.every((x) => this.isSurelyEmpty(x));
      });
    } catch (error) {
      if (error instanceof InProgress) return false;
      throw error;
    } finally {
      this.#level--;
    }
  }

  found =
    (key: string) =>
    (pattern: Pattern): boolean =>
      this.patterns.finds(pattern.expr, key);

  #necessaryParts(a: Alternative): readonly Conditions[] {
    if (a.type === 'object') {
      return a.required.map((key) => a.facets.flatMap((facet) => conditionsOf(facet, key, this.found(key))));
    }
    if (a.type === 'array') return Array.from({ length: Math.min(a.min, a.prefix.length + 1) }, (_, i) => a.prefix[i] ?? a.rest);
    return [];
  }

  /** The constants that the other alternative allows. */
  #select(constants: ConstantAlternative, other: Alternative): { readonly value: Alternative | null; readonly exact: boolean } {
    if (other.type === 'constant') {
      const allowed = new Set(other.values.map(identity));
      return selected(constants, (value) => allowed.has(identity(value)));
    }
    let exact = true;
    const kept = selected(constants, (value) => {
      const verdict = verdictOf(value, other, this.#reading);
      if (verdict === 'unknown') exact = false;
      return verdict === 'yes';
    });
    return { value: kept.value, exact };
  }

  #tooMany(schema: SchemaObject | null): ConstraintError {
    const why = `combines to more than ${MAX_ALTERNATIVES} alternatives`;
    return schema === null ? new ConstraintError(`The schema ${why}.`) : refusal('anyOf', this.document.pathOf(schema), why);
  }
}

function selected(
  constants: ConstantAlternative,
  keep: (value: unknown) => boolean,
): { readonly value: Alternative | null; readonly exact: true } {
  const values = constants.values.filter(keep);
  if (values.length === constants.values.length) return { value: constants, exact: true };
  return { value: values.length === 0 ? null : { type: 'constant', values }, exact: true };
}

/** All constants in one alternative, each value once. */
function mergeConstants(list: readonly Alternative[]): readonly Alternative[] {
  const constants = list.filter((a) => a.type === 'constant');
  if (constants.length < 2) return list;
  const values = new Map(constants.flatMap((a) => a.values.map((v) => [identity(v), v] as const)));
  return [{ type: 'constant', values: [...values.values()] }, ...list.filter((a) => a.type !== 'constant')];
}
