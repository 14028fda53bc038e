/**
 * Numbers as text. Bounds are compared as decimals, digit by digit: rounding to a double keeps order, so that what holds for the decimals
 * holds for the doubles; where equality must be excluded, digits are so few (15) that different decimals are different doubles.
 * Digits and exponents are bounded, so that every number is finite.
 */
import type { Meter } from '../limits.js';
import { alt, chars, EMPTY, type Expr, NEVER, optional, repeat, seq, text } from '../pattern/expr.js';

const DIGIT = chars('09');
/** Decimal digits that a double always tells apart. */
const MAX_DIGITS = 15;
/** Digits behind the point: of numbers with bounds, of bounds that need more, and where large bounds leave less room. */
const USUAL_DECIMALS = 6;
const MAX_DECIMALS = 9;
const FEW_DECIMALS = 3;

const whole = (digits: number): Expr => alt(text('0'), seq(chars('19'), repeat(DIGIT, 0, digits - 1)));
const fraction = (digits: number): Expr => seq(text('.'), repeat(DIGIT, 1, digits));

/** Any number. With two digits of exponent it stays below 10^115. */
export const FREE_NUMBER: Expr = seq(
  optional(text('-')),
  whole(MAX_DIGITS),
  optional(fraction(MAX_DIGITS)),
  optional(seq(chars('ee', 'EE'), optional(chars('++', '--')), repeat(DIGIT, 1, 2))),
);
/** Any whole number, in the one spelling that it has: no "-0", no fraction. */
export const FREE_INTEGER: Expr = alt(text('0'), seq(optional(text('-')), chars('19'), repeat(DIGIT, 0, MAX_DIGITS - 1)));

export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

/** Digits behind the point of a number's shortest decimal. */
export function numDecimals(value: number): number {
  const [mantissa = '', exponent = '0'] = String(value).split('e');
  return Math.max(0, (mantissa.split('.')[1]?.length ?? 0) - Number(exponent));
}

/** A number's shortest decimal times 10^decimals, rounded towards `up` or down; exact when it has no more decimals. */
export function scaled(value: number, decimals: number, up: boolean): bigint {
  const [mantissa = '', exponent = '0'] = String(Math.abs(value)).split('e');
  const [int = '', frac = ''] = mantissa.split('.');
  const shift = Number(exponent) - frac.length + decimals;
  const digits = BigInt(int + frac) * (value < 0 ? -1n : 1n);
  if (shift >= 0) return digits * 10n ** BigInt(shift);
  const unit = 10n ** BigInt(-shift);
  const down = digits / unit - (digits % unit < 0n ? 1n : 0n);
  return up && digits % unit !== 0n ? down + 1n : down;
}

export interface NumberRange {
  readonly min: Bound | null;
  readonly max: Bound | null;
  readonly integer: boolean;
}
export interface ScaledRange {
  /** Digits behind the point, at most; the bounds are numbers times 10^decimals, both included. */
  readonly decimals: number;
  readonly digits: number;
  readonly lo: bigint;
  readonly hi: bigint;
}

/**
 * The decimals that a range allows, as integers, with as many digits behind the point as leave room for the bounds before it; bounds with
 * more are rounded inwards. null when the bounds leave only numbers of more digits than can be told apart.
 */
export function scaledRange(range: NumberRange): ScaledRange | null {
  const needed = [range.min, range.max].map((b) => (b === null ? 0 : Math.min(numDecimals(b.value), MAX_DECIMALS)));
  for (const decimals of range.integer ? [0] : [Math.max(USUAL_DECIMALS, ...needed), FEW_DECIMALS, 0]) {
    const digits = MAX_DIGITS - decimals;
    const limit = 10n ** BigInt(MAX_DIGITS) - 1n;
    const lo = range.min === null ? -limit : scaled(range.min.value, decimals, true) + exclusive(range.min, decimals, true);
    const hi = range.max === null ? limit : scaled(range.max.value, decimals, false) - exclusive(range.max, decimals, false);
    if (lo <= limit && hi >= -limit) return { decimals, digits, lo: lo < -limit ? -limit : lo, hi: hi > limit ? limit : hi };
  }
  return null;
}

/** A bound that is excluded moves by one step, unless rounding has moved it already. */
const exclusive = (bound: Bound, decimals: number, up: boolean): bigint =>
  bound.exclusive && scaled(bound.value, decimals, up) === scaled(bound.value, decimals, !up) ? 1n : 0n;

/** Every spelling without exponent of the numbers of the range. */
export function rangeExpr(range: ScaledRange, meter: Meter): Expr {
  const positive = unsignedRange({ ...range, lo: range.lo < 0n ? 0n : range.lo }, meter);
  const negative = unsignedRange({ ...range, lo: range.hi < 0n ? -range.hi : 1n, hi: -range.lo }, meter);
  return alt(positive, seq(text('-'), negative));
}

function unsignedRange(range: ScaledRange, meter: Meter): Expr {
  const options: Expr[] = [];
  const unit = 10n ** BigInt(range.decimals);
  let wholeFrom = 0;
  const frac = range.decimals === 0 ? EMPTY : optional(fraction(range.decimals));
  for (let length = 1; length <= range.digits; length++) {
    const least = length === 1 ? 0n : 10n ** BigInt(length - 1) * unit;
    const most = 10n ** BigInt(length) * unit - 1n;
    const lo = range.lo > least ? range.lo : least;
    const hi = range.hi < most ? range.hi : most;
    const full = lo === least && hi === most;
    if (full && wholeFrom === 0) wholeFrom = length;
    if (wholeFrom > 0 && (!full || length === range.digits)) {
      const last = full ? length : length - 1;
      if (wholeFrom === 1) options.push(seq(text('0'), frac));
      options.push(seq(chars('19'), repeat(DIGIT, wholeFrom - 1, last - 1), frac));
      wholeFrom = 0;
    }
    if (!full && lo <= hi) options.push(digitsBetween(lo, hi, length, range.decimals, meter));
  }
  return alt(...options);
}

/** Texts of exactly `length` digits, a point and up to `decimals` digits, between two bounds. */
function digitsBetween(lo: bigint, hi: bigint, length: number, decimals: number, meter: Meter): Expr {
  const low = lo.toString().padStart(length + decimals, '0');
  const high = hi.toString().padStart(length + decimals, '0');
  const total = length + decimals;
  const known = new Map<string, Expr>();
  /** From a position on, where the text so far equals the first digits of a bound or lies between them. */
  const from = (at: number, onLow: boolean, onHigh: boolean): Expr => {
    if (at === total) return EMPTY;
    const key = `${at}${onLow}${onHigh}`;
    const have = known.get(key);
    if (have !== undefined) return have;
    meter.tick();
    const open = !onLow && !onHigh && at > length;
    const stop = at >= length && !open && (!onLow || /^0*$/.test(low.slice(at))) ? [EMPTY] : [];
    let rest: Expr;
    if (!onLow && !onHigh && at >= length) rest = repeat(DIGIT, at === length ? 1 : 0, total - at);
    else if (!onLow && !onHigh) rest = seq(repeat(DIGIT, length - at, length - at), from(length, false, false));
    else rest = step(at, onLow, onHigh);
    const made = at === length && decimals > 0 ? alt(...stop, seq(text('.'), rest)) : alt(...stop, rest);
    known.set(key, made);
    return made;
  };
  const step = (at: number, onLow: boolean, onHigh: boolean): Expr => {
    const first = onLow ? Number(low[at]) : 0;
    const last = onHigh ? Number(high[at]) : 9;
    const options: Expr[] = [];
    let middle = first;
    for (let d = first; d <= last; d++) {
      const [sameLow, sameHigh] = [onLow && d === first, onHigh && d === last];
      if (!sameLow && !sameHigh) continue;
      if (middle < d) options.push(seq(chars(`${middle}${d - 1}`), from(at + 1, false, false)));
      options.push(seq(text(String(d)), from(at + 1, sameLow, sameHigh)));
      middle = d + 1;
    }
    if (middle <= last) options.push(seq(chars(`${middle}${last}`), from(at + 1, false, false)));
    return alt(...options);
  };
  return lo > hi ? NEVER : from(0, true, true);
}
