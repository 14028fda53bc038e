/**
 * All parts of a schema that an answer can have, each a set of conditions, and which of them have a value at all: found from the values
 * without parts upwards, so that a schema that only ends in itself has none.
 */
import type { Meter } from '../limits.js';
import { type Expr, isNever } from '../pattern/expr.js';
import type { Alternative, ArrayAlternative, Conditions, NumberAlternative, ObjectAlternative } from './alternatives.js';
import { isNothing, isUnrestricted } from './alternatives.js';
import type { Expander } from './expand.js';
import { isEmptyLanguage, Languages } from './language.js';
import { layoutOf, type ObjectLayout } from './layout.js';
import { numbersOf } from './number-text.js';

export interface Part {
  readonly conditions: Conditions;
  readonly alternatives: readonly Alternative[];
  /** Has a value. */
  inhabited: boolean;
}

export class Parts {
  readonly expander: Expander;
  readonly languages: Languages;
  readonly #meter: Meter;
  readonly #parts = new Map<string, Part>();
  readonly #layouts = new Map<ObjectAlternative, ObjectLayout | null>();
  readonly #numbers = new Map<NumberAlternative, Expr>();

  /** Finds everything that can be reached from `root`. */
  constructor(root: Conditions, expander: Expander, meter: Meter) {
    this.expander = expander;
    this.#meter = meter;
    this.languages = new Languages(meter);
    const rest: Part[] = [];
    const meet = (conditions: Conditions): void => {
      const key = expander.keyOf(conditions);
      if (isNothing(conditions) || this.#parts.has(key)) return;
      meter.addRule();
      const part: Part = { conditions, alternatives: preferred(expander.expand(conditions).list), inhabited: false };
      this.#parts.set(key, part);
      rest.push(part);
    };
    meet(root);
    for (const part of rest) for (const a of part.alternatives) for (const child of this.#childrenOf(a)) meet(child);
    this.#findInhabited(rest.reverse());
  }

  /** The part of conditions that were reached, or undefined for those that nothing meets. */
  of(conditions: Conditions): Part | undefined {
    return this.#parts.get(this.expander.keyOf(conditions));
  }

  isInhabited(conditions: Conditions): boolean {
    return !isNothing(conditions) && this.of(conditions)?.inhabited === true;
  }

  layout(a: ObjectAlternative): ObjectLayout | null {
    const known = this.#layouts.get(a);
    if (known !== undefined) return known;
    const made = layoutOf(a, this.expander, this.languages);
    this.#layouts.set(a, made);
    return made;
  }

  numbers(a: NumberAlternative): Expr {
    const known = this.#numbers.get(a);
    if (known !== undefined) return known;
    const made = numbersOf(a, this.#meter);
    this.#numbers.set(a, made);
    return made;
  }

  /** Whether the alternative has a value, as far as is known of its parts. */
  isPossible(a: Alternative): boolean {
    switch (a.type) {
      case 'constant':
        return a.values.length > 0;
      case 'string':
        return !isEmptyLanguage(this.languages.of(a));
      case 'number':
        return !isNever(this.numbers(a));
      case 'array':
        return Array.from({ length: Math.min(a.min, a.prefix.length + 1) }, (_, i) => a.prefix[i] ?? a.rest).every((c) =>
          this.isInhabited(c),
        );
      case 'object': {
        const layout = this.layout(a);
        if (layout === null) return false;
        const usable = layout.named.filter((n) => this.isInhabited(n.conditions));
        const most = layout.free.some((f) => this.isInhabited(f.conditions)) ? Infinity : usable.length;
        const least = layout.named.filter((n) => n.required);
        return least.every((n) => usable.includes(n)) && least.length <= layout.max && most >= layout.min;
      }
    }
  }

  #childrenOf(a: Alternative): readonly Conditions[] {
    if (a.type === 'array') return arrayChildren(a);
    if (a.type !== 'object') return [];
    const layout = this.layout(a);
    return layout === null ? [] : [...layout.named, ...layout.free].map((k) => k.conditions);
  }

  #findInhabited(parts: readonly Part[]): void {
    for (let changed = true; changed; ) {
      changed = false;
      for (const part of parts) {
        this.#meter.tick();
        if (part.inhabited || !part.alternatives.some((a) => this.isPossible(a))) continue;
        part.inhabited = changed = true;
      }
    }
  }
}

const arrayChildren = (a: ArrayAlternative): readonly Conditions[] => [...a.prefix, ...(a.max > a.prefix.length ? [a.rest] : [])];

/**
 * A schema that restricts one type and says nothing of the others (`properties` without `type`) means that type: of several kinds of
 * values those are left out of which nothing is said.
 */
function preferred(list: readonly Alternative[]): readonly Alternative[] {
  const restricted = list.filter((a) => !isUnrestricted(a));
  const types = new Set(restricted.map((a) => a.type));
  const free = list.filter(isUnrestricted);
  return types.size === 1 && restricted[0]?.type !== 'constant' && free.length === 4 && !free.some((a) => types.has(a.type))
    ? restricted
    : list;
}
