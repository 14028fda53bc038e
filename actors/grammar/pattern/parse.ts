/**
 * The text of a pattern to an Expr: ECMAScript's syntax with the flag `u`, as JSON Schema asks, less what no automaton can do
 * (lookaround, backreferences, word boundaries) which is refused by name; Python's `(?P<name>`, `\A` and `\Z` are taken as well.
 * Lazy quantifiers match the same texts as greedy ones.
 */
import { ConstraintError, type Path, quoted } from '../error.js';
import type { ConstraintLimits } from '../limits.js';
import { classEscape, DOT, takeEscape } from './escapes.js';
import { alt, EMPTY, type Expr, numPositions, repeat, seq } from './expr.js';
import { ALL, intersectRanges, invertRanges, type Range, type Ranges, rangesOf } from './ranges.js';
import { PatternReader } from './reader.js';

export type PatternLimits = Pick<ConstraintLimits, 'maxPatternLength' | 'maxDepth' | 'maxRepeat' | 'maxStates'>;

/** Throws ConstraintError at `path` for what is not a pattern, cannot be an automaton or is over a limit. */
export function parsePattern(source: string, limits: PatternLimits, path: Path): Expr {
  if (source.length > limits.maxPatternLength) {
    throw new ConstraintError(
      `A pattern has ${source.length} characters, more than structured_output.max_pattern_length = ${limits.maxPatternLength}.`,
      path,
    );
  }
  if (!source.isWellFormed()) throw new ConstraintError('A pattern holds half of a surrogate pair.', path);
  const reader = new PatternReader(source, path);
  const expr = alternatives(reader, limits, 0);
  if (!reader.done) reader.fail('has a closing parenthesis too many');
  if (numPositions(expr) > limits.maxStates) {
    reader.fail(`needs more states than structured_output.max_states = ${limits.maxStates}`);
  }
  return expr;
}

function alternatives(r: PatternReader, limits: PatternLimits, depth: number): Expr {
  if (depth > limits.maxDepth) r.fail(`nests deeper than structured_output.max_depth = ${limits.maxDepth}`);
  const options = [sequence(r, limits, depth)];
  while (r.take('|')) options.push(sequence(r, limits, depth));
  return alt(...options);
}

function sequence(r: PatternReader, limits: PatternLimits, depth: number): Expr {
  const items: Expr[] = [];
  while (!r.done && r.peek() !== '|' && r.peek() !== ')') items.push(quantified(atom(r, limits, depth), r, limits));
  return seq(...items);
}

function atom(r: PatternReader, limits: PatternLimits, depth: number): Expr {
  const c = r.next();
  switch (c) {
    case '^':
      return { op: 'start' };
    case '$':
      return { op: 'end' };
    case '.':
      return { op: 'class', ranges: DOT };
    case '(':
      return group(r, limits, depth);
    case '[':
      return { op: 'class', ranges: charClass(r) };
    case '\\':
      return takeEscape(r);
    case '*':
    case '+':
    case '?':
      return r.fail(`repeats nothing with ${quoted(c)}`);
    default:
      return { op: 'text', text: c };
  }
}

/** What may follow `(?`, or why not. */
const refusedGroups: readonly (readonly [string, string])[] = [
  ['=', 'has a lookahead, which is not supported'],
  ['!', 'has a negative lookahead, which is not supported'],
  ['<=', 'has a lookbehind, which is not supported'],
  ['<!', 'has a negative lookbehind, which is not supported'],
  ['>', 'has an atomic group, which is not supported'],
  ['#', 'has a comment, which is not supported'],
  ['P=', 'has a backreference, which is not supported'],
  ['(', 'has a condition, which is not supported'],
];

function group(r: PatternReader, limits: PatternLimits, depth: number): Expr {
  if (r.take('?') && !r.take(':')) {
    for (const [start, why] of refusedGroups) if (r.take(start)) r.fail(why);
    r.take('P');
    if (r.takeMatch(/^<[A-Za-z_$][\w$]{0,30}>/) === null) r.fail('has a group of an unknown kind, such as flags, which is not supported');
  }
  const inner = alternatives(r, limits, depth + 1);
  if (!r.take(')')) r.fail('has a group that is not closed');
  return inner;
}

function quantified(item: Expr, r: PatternReader, limits: PatternLimits): Expr {
  const counts = quantifier(r);
  if (counts === null) return item;
  const [min, max] = counts;
  if (item.op === 'start' || item.op === 'end') r.fail('repeats an anchor');
  for (const count of [min, max]) {
    if (count !== Infinity && count > limits.maxRepeat) {
      r.fail(`repeats more often than structured_output.max_repeat = ${limits.maxRepeat}`);
    }
  }
  if (min > max) r.fail('has a count whose minimum is over its maximum');
  r.take('?');
  if (r.peek() === '+') r.fail('has a possessive quantifier, which is not supported');
  if (quantifier(r) !== null) r.fail('repeats a repetition without a group');
  return item === EMPTY ? EMPTY : repeat(item, min, max);
}

function quantifier(r: PatternReader): readonly [number, number] | null {
  if (r.take('*')) return [0, Infinity];
  if (r.take('+')) return [1, Infinity];
  if (r.take('?')) return [0, 1];
  const counts = r.takeMatch(/^\{\d+(,\d*)?\}/);
  if (counts === null) return null;
  const [min, max] = counts.slice(1, -1).split(',');
  return [Number(min), max === undefined ? Number(min) : max === '' ? Infinity : Number(max)];
}

/** The characters of a class whose `[` has been read. */
function charClass(r: PatternReader): Ranges {
  const negated = r.take('^');
  const ranges: Range[] = [];
  while (!r.take(']')) {
    if (r.done) r.fail('has a class that is not closed');
    const first = member(r);
    if (r.peek() === '-' && r.peek(1) !== ']' && r.peek(1) !== '') {
      const dash = r.at;
      r.next();
      const last = member(r);
      if (typeof first === 'number' && typeof last === 'number') {
        if (last < first) r.fail('has a range that ends before it starts');
        ranges.push([first, last]);
        continue;
      }
      r.at = dash;
    }
    if (typeof first === 'number') ranges.push([first, first]);
    else ranges.push(...first);
  }
  const set = intersectRanges(rangesOf(ranges), ALL);
  return negated ? invertRanges(set) : set;
}

function member(r: PatternReader): number | Ranges {
  const c = r.next();
  if (c === '\\') return classEscape(r);
  return c.codePointAt(0) ?? 0;
}
