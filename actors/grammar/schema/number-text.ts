/** The numbers of an alternative as text. */
import { ConstraintError } from '../error.js';
import type { Meter } from '../limits.js';
import { dfaOf, intersect } from '../pattern/dfa.js';
import { alt, chars, type Expr, NEVER, optional, plus, repeat, seq, star, text } from '../pattern/expr.js';
import { exprOf } from '../pattern/to-expr.js';
import { multiplesExpr } from '../value/multiples.js';
import { FREE_INTEGER, FREE_NUMBER, rangeExpr, scaledRange } from '../value/numbers.js';
import type { NumberAlternative } from './alternatives.js';

const DIGIT = chars('09');
/** A decimal whose last digit is not zero. */
const FRACTIONAL = seq(optional(text('-')), plus(DIGIT), text('.'), star(DIGIT), chars('19'));
/** Every decimal of up to fifteen digits in one spelling. */
const CANONICAL = alt(
  FREE_INTEGER,
  seq(optional(text('-')), alt(text('0'), seq(chars('19'), repeat(DIGIT, 0, 8))), text('.'), repeat(DIGIT, 0, 5), chars('19')),
);

/** NEVER where the bounds leave no number. */
export function numbersOf(a: NumberAlternative, meter: Meter): Expr {
  const bounded = a.min !== null || a.max !== null;
  const steps = a.multiples.filter((m) => !(m === 1 && a.integer === true));
  const multiples = steps.length > 0 && a.integer === true ? [...steps, 1] : steps;
  if (!bounded && multiples.length === 0 && a.integer !== false) return a.integer === true ? FREE_INTEGER : FREE_NUMBER;
  const range = scaledRange({ min: a.min, max: a.max, integer: a.integer === true });
  if (range === null) {
    throw new ConstraintError(
      'The bounds "minimum", "maximum", "exclusiveMinimum" or "exclusiveMaximum" of a number leave only numbers of more than 15 digits, which are not supported.',
    );
  }
  if (range.lo > range.hi) return NEVER;
  const all = multiples.length === 0 ? rangeExpr(range, meter) : multiplesExpr(range, multiples, meter);
  if (all === null) {
    throw new ConstraintError(
      `The keyword "multipleOf" is ${multiples.join(', ')}, for which no multiples can be written that every validator accepts.`,
    );
  }
  return a.integer === false ? exprOf(intersect(dfaOf(all, false, meter), dfaOf(FRACTIONAL, false, meter), meter), meter) : all;
}

/** The same numbers, each in one spelling; whole ones only where there are bounds. */
export function canonicalNumbersOf(a: NumberAlternative, meter: Meter): Expr {
  const bounded = a.min !== null || a.max !== null || a.multiples.length > 0;
  if (a.integer === true || (bounded && a.integer === null)) return numbersOf({ ...a, integer: true }, meter);
  if (a.integer === null) return CANONICAL;
  throw new ConstraintError('The keyword "uniqueItems" is not supported for numbers that must not be whole.');
}
