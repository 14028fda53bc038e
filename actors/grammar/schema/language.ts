/** The strings of an alternative as one expression, or as lengths alone where nothing else is asked. */
import { refusal } from '../error.js';
import type { Meter } from '../limits.js';
import { acceptsNothing, complement, type Dfa, dfaOf, intersect, lengthDfa } from '../pattern/dfa.js';
import { alt, type Expr, isNever, lengthsOf, NEVER, repeat, seq, text } from '../pattern/expr.js';
import { exprOf } from '../pattern/to-expr.js';
import { wholeExpr } from '../pattern/whole.js';
import { formatExpr } from '../value/formats.js';
import type { StringAlternative } from './alternatives.js';

export interface Language {
  /** From the first character to the last; null: any characters. */
  readonly expr: Expr | null;
  readonly min: number;
  readonly max: number;
}

/** Most states that counting lengths may add to an automaton; long strings are cut to what fits. */
const MAX_COUNTED = 2000;

export const isEmptyLanguage = (l: Language): boolean => l.min > l.max || (l.expr !== null && isNever(l.expr));

export class Languages {
  readonly #meter: Meter;
  readonly #known = new Map<StringAlternative, Language>();

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  of(a: StringAlternative): Language {
    const known = this.#known.get(a);
    if (known !== undefined) return known;
    const made = this.#make(a);
    this.#known.set(a, made);
    return made;
  }

  #make(a: StringAlternative): Language {
    const { maxRepeat } = this.#meter.limits;
    if (a.min > maxRepeat)
      throw refusal('minLength', [], `asks for ${a.min} characters, more than structured_output.max_repeat = ${maxRepeat}`);
    const max = a.max > maxRepeat && a.max !== Infinity ? maxRepeat : a.max;
    // Half of a surrogate pair is in no string that is written character by character: nothing is to be kept out.
    const excluded = a.excluded.filter((word) => word.isWellFormed());
    const parts = [...a.formats.flatMap((name) => formatExpr(name) ?? []), ...a.patterns.map((p) => wholeExpr(p.expr, true, this.#meter))];
    const plain = a.notPatterns.length === 0 && excluded.length === 0;
    if (plain && parts.length === 0) return { expr: null, min: a.min, max };
    const single = plain && parts.length === 1 ? counted(parts[0]!, a.min, a.max, max) : null;
    return { expr: single ?? this.#automaton({ ...a, excluded }, parts, max), min: 0, max: Infinity };
  }

  #automaton(a: StringAlternative, parts: readonly Expr[], max: number): Expr {
    const meter = this.#meter;
    const all = [
      ...parts.map((p) => dfaOf(p, false, meter)),
      ...a.notPatterns.map((p) => complement(dfaOf(p.expr, true, meter), meter)),
      ...(a.excluded.length === 0 ? [] : [complement(dfaOf(alt(...a.excluded.map(text)), false, meter), meter)]),
    ];
    let automaton = all.reduce((x, y) => intersect(x, y, meter));
    if (acceptsNothing(automaton)) return NEVER;
    const lengths = parts.map(lengthsOf);
    const [shortest, longest] = [Math.max(0, ...lengths.map((l) => l.min)), Math.min(Infinity, ...lengths.map((l) => l.max))];
    if (a.min > shortest || a.max < longest) automaton = this.#cut(automaton, a.min, max);
    return acceptsNothing(automaton) ? NEVER : exprOf(automaton, meter);
  }

  #cut(automaton: Dfa, min: number, max: number): Dfa {
    const most = Math.max(min + 8, Math.floor(MAX_COUNTED / automaton.edges.length));
    return intersect(automaton, lengthDfa(min, max === Infinity ? max : Math.min(max, most), this.#meter), this.#meter);
  }
}

/** The expression cut to lengths without an automaton, where that is plain to see. */
function counted(e: Expr, min: number, asked: number, max: number): Expr | null {
  const lengths = lengthsOf(e);
  if (min <= lengths.min && asked >= lengths.max) return e;
  if (lengths.min > asked || lengths.max < min) return NEVER;
  // One part of the expression is a class so many times, and the others have one length each: its count takes up the difference.
  const items = e.op === 'seq' ? e.items : [e];
  const flexible = items.filter((item) => lengthsOf(item).min !== lengthsOf(item).max);
  const [item] = flexible;
  if (flexible.length !== 1 || item?.op !== 'repeat' || item.item.op !== 'class') return null;
  const fixed = lengths.min - item.min;
  const [least, most] = [Math.max(item.min, min - fixed), Math.min(item.max, max - fixed)];
  return least > most ? NEVER : seq(...items.map((x) => (x === item ? repeat(item.item, least, most) : x)));
}
