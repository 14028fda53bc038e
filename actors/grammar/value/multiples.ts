/**
 * `multipleOf`. Validators divide doubles, so that 0.07 is no multiple of 0.01 for them (0.07 / 0.01 = 7.000000000000001). Only numbers
 * for which that division is exact are written: integers by an automaton of remainders, decimals where a range lists them, or else
 * integers and the halves and quarters that a double holds exactly.
 */
import type { Meter } from '../limits.js';
import { type Dfa, dfaOf, intersect, trim } from '../pattern/dfa.js';
import { alt, type Expr, NEVER, seq, text } from '../pattern/expr.js';
import { exprOf } from '../pattern/to-expr.js';
import { numDecimals, rangeExpr, type ScaledRange, scaled } from './numbers.js';

/** Ranges with no more multiples than this are written as a list. */
const MAX_LISTED = 500;
/** An automaton of more remainders than this is replaced by the multiples next to zero. */
const MAX_REMAINDERS = 256;

/** What a validator computes. */
const divides = (value: number, step: number): boolean => Number.isInteger(value / step);

/** Numbers of the range that every one of `steps` divides; null where none can be written surely. */
export function multiplesExpr(range: ScaledRange, steps: readonly number[], meter: Meter): Expr | null {
  if (steps.some((s) => numDecimals(s) > 100 || s >= 1e15)) return null;
  const decimals = Math.max(range.decimals, ...steps.map(numDecimals));
  const step = steps.map((s) => scaled(s, decimals, false)).reduce(leastCommon);
  const shift = 10n ** BigInt(decimals - range.decimals);
  const [lo, hi] = [range.lo * shift, range.hi * shift];
  const first = ceilDiv(lo, step);
  const last = -ceilDiv(-hi, step);
  if (last < first) return NEVER;
  if (last - first < BigInt(MAX_LISTED)) return listed(first, last, step, decimals, steps);
  const unit = 10n ** BigInt(decimals);
  const wholeStep = step / greatestCommon(step, unit);
  // With more decimals a quotient could pass 1e21, which validators print and read again.
  if (Math.max(...steps.map(numDecimals)) > 5 || !steps.every(isNearlyExact)) return null;
  const integers: ScaledRange = { decimals: 0, digits: 15, lo: ceilDiv(lo, unit), hi: -ceilDiv(-hi, unit) };
  if (wholeStep > BigInt(MAX_REMAINDERS)) {
    const start = integers.lo > 0n ? ceilDiv(integers.lo, wholeStep) : integers.hi < 0n ? ceilDiv(integers.lo, wholeStep) : 0n;
    const end = -ceilDiv(-integers.hi, wholeStep);
    const to = start + BigInt(MAX_LISTED) < end ? start + BigInt(MAX_LISTED) : end;
    return listed(start, to, wholeStep, 0, steps);
  }
  if (wholeStep > 1n) {
    const automaton = intersect(dfaOf(rangeExpr(integers, meter), false, meter), remainders(Number(wholeStep), meter), meter);
    return exprOf(automaton, meter);
  }
  // Between two integers that are in the range, halves and quarters are too; next to its ends they might not be.
  const inner: ScaledRange = { ...integers, lo: integers.lo > 0n ? integers.lo : 0n, hi: integers.hi - 1n };
  const parts = ['.5', '.25', '.75'].filter(
    (f) => range.decimals > 0 && scaled(Number(`0${f}`), decimals + 2, false) % (step * 100n) === 0n,
  );
  return alt(rangeExpr(integers, meter), ...parts.map((f) => seq(rangeExpr(inner, meter), text(f))));
}

function listed(first: bigint, last: bigint, step: bigint, decimals: number, steps: readonly number[]): Expr {
  const words: string[] = [];
  for (let i = first; i <= last; i++) {
    const word = decimalText(i * step, decimals);
    if (steps.every((s) => divides(Number(word), s))) words.push(word);
  }
  return alt(...words.map(text));
}

function decimalText(value: bigint, decimals: number): string {
  const digits = (value < 0n ? -value : value).toString().padStart(decimals + 1, '0');
  const cut = digits.length - decimals;
  const frac = digits.slice(cut).replace(/0+$/, '');
  return `${value < 0n ? '-' : ''}${digits.slice(0, cut)}${frac === '' ? '' : `.${frac}`}`;
}

/** Whole numbers, signed, whose remainder is 0: a state for each remainder of the digits so far. */
function remainders(step: number, meter: Meter): Dfa {
  meter.addStates(step + 2);
  const start = step;
  const edges = Array.from({ length: step + 2 }, (_, state) => {
    const value = state >= step ? 0 : state;
    const digits = Array.from({ length: 10 }, (_, d) => ({ lo: 0x30 + d, hi: 0x30 + d, to: (value * 10 + d) % step }));
    return state === start ? [{ lo: 0x2d, hi: 0x2d, to: step + 1 }, ...digits] : digits;
  });
  // The automaton starts in state 0, so that the start and remainder 0 change places.
  const swap = (s: number): number => (s === 0 ? start : s === start ? 0 : s);
  const swapped = edges.map((_, s) => edges[swap(s)]!.map((edge) => ({ ...edge, to: swap(edge.to) })));
  return trim({ edges: swapped, accepts: edges.map((_, s) => swap(s) === 0) }, meter);
}

/**
 * Whether a double lies within a quarter of its last place of the decimal it stands for. Then an exact number divided by it rounds to the
 * exact quotient, since the relative error is below half a place of any quotient.
 */
function isNearlyExact(step: number): boolean {
  if (Number.isInteger(step)) return true;
  const decimals = numDecimals(step);
  const exact = scaled(step, decimals, false);
  // The double itself, as a fraction with a power of two below: scaled up until it is whole.
  let [above, below] = [step, 1n];
  while (!Number.isInteger(above)) {
    above *= 2;
    below *= 2n;
  }
  const error = BigInt(above) * 10n ** BigInt(decimals) - exact * below;
  return (error < 0n ? -error : error) * 2n ** 54n <= exact * below;
}

const ceilDiv = (a: bigint, b: bigint): bigint => a / b + (a % b > 0n ? 1n : 0n);
const greatestCommon = (a: bigint, b: bigint): bigint => (b === 0n ? a : greatestCommon(b, a % b));
const leastCommon = (a: bigint, b: bigint): bigint => (a / greatestCommon(a, b)) * b;
