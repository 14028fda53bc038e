/**
 * Regular expressions as trees (or graphs: a part may be used in several places) over code points. Patterns, formats and ranges of
 * numbers are all made of these; `write.ts` turns them into GBNF, `nfa.ts` into automata.
 */
import { ALL, numPoints, type Range, type Ranges, rangesOf } from './ranges.js';

export type Expr =
  | { readonly op: 'class'; readonly ranges: Ranges }
  | { readonly op: 'text'; readonly text: string }
  | { readonly op: 'seq'; readonly items: readonly Expr[] }
  | { readonly op: 'alt'; readonly items: readonly Expr[] }
  /** `max` is Infinity when there is none. */
  | { readonly op: 'repeat'; readonly item: Expr; readonly min: number; readonly max: number }
  /** True only before the first, after the last character. */
  | { readonly op: 'start' }
  | { readonly op: 'end' };

export const EMPTY: Expr = { op: 'text', text: '' };
/** Matches nothing, not even the empty text. */
export const NEVER: Expr = { op: 'class', ranges: [] };
const ANY: Expr = { op: 'class', ranges: ALL };

export const isEmpty = (e: Expr): boolean => e.op === 'text' && e.text === '';
export const isNever = (e: Expr): boolean => e.op === 'class' && e.ranges.length === 0;

export const text = (value: string): Expr => ({ op: 'text', text: value });
/** `chars('az', '09', '__')`: each argument is a range, first and last character. */
export const chars = (...pairs: readonly string[]): Expr => ({
  op: 'class',
  ranges: rangesOf(pairs.map((pair): Range => [pair.codePointAt(0) ?? 0, pair.codePointAt(1) ?? pair.codePointAt(0) ?? 0])),
});

export function seq(...items: readonly Expr[]): Expr {
  const flat = items.flatMap((e) => (e.op === 'seq' ? e.items : [e])).filter((e) => !isEmpty(e));
  if (flat.some(isNever)) return NEVER;
  return flat.length === 0 ? EMPTY : flat.length === 1 ? flat[0]! : { op: 'seq', items: flat };
}

export function alt(...items: readonly Expr[]): Expr {
  const flat = [...new Set(items.flatMap((e) => (e.op === 'alt' ? e.items : [e])).filter((e) => !isNever(e)))];
  return flat.length === 0 ? NEVER : flat.length === 1 ? flat[0]! : { op: 'alt', items: flat };
}

export function repeat(item: Expr, min: number, max: number): Expr {
  if (max === 0 || isEmpty(item)) return EMPTY;
  if (isNever(item)) return min === 0 ? EMPTY : NEVER;
  return min === 1 && max === 1 ? item : { op: 'repeat', item, min, max };
}

export const optional = (item: Expr): Expr => repeat(item, 0, 1);
export const star = (item: Expr): Expr => repeat(item, 0, Infinity);
export const plus = (item: Expr): Expr => repeat(item, 1, Infinity);
export const anyText = (): Expr => star(ANY);

/** What `of` says of a node, each node asked once however often it is used. */
export function fold<T>(root: Expr, of: (e: Expr, below: (part: Expr) => T) => T): T {
  const known = new Map<Expr, T>();
  const visit = (e: Expr): T => {
    if (known.has(e)) return known.get(e) as T;
    const found = of(e, visit);
    known.set(e, found);
    return found;
  };
  return visit(root);
}

const numTimes = (e: { readonly min: number; readonly max: number }): number => Math.max(1, e.max === Infinity ? e.min + 1 : e.max);

/** Positions of the expression with every count written out: what an automaton of it costs. */
export function numPositions(root: Expr): number {
  return fold<number>(root, (e, below) => {
    switch (e.op) {
      case 'class':
        return 1;
      case 'text':
        return e.text.length + 1;
      case 'seq':
      case 'alt':
        return e.items.reduce((sum, item) => sum + below(item), 1);
      case 'repeat':
        return below(e.item) * numTimes(e);
      default:
        return 1;
    }
  });
}

/** Least and largest length of what the expression matches, in code points. */
export function lengthsOf(root: Expr): { readonly min: number; readonly max: number } {
  return fold<{ min: number; max: number }>(root, (e, below) => {
    switch (e.op) {
      case 'class':
        return { min: 1, max: 1 };
      case 'text': {
        const length = [...e.text].length;
        return { min: length, max: length };
      }
      case 'seq': {
        const parts = e.items.map(below);
        return { min: parts.reduce((sum, p) => sum + p.min, 0), max: parts.reduce((sum, p) => sum + p.max, 0) };
      }
      case 'alt': {
        const parts = e.items.map(below);
        return { min: Math.min(...parts.map((p) => p.min)), max: Math.max(...parts.map((p) => p.max)) };
      }
      case 'repeat': {
        const part = below(e.item);
        return { min: part.min * e.min, max: part.max === 0 ? 0 : part.max * e.max };
      }
      default:
        return { min: 0, max: 0 };
    }
  });
}

export const hasAnchors = (root: Expr): boolean =>
  fold<boolean>(root, (e, below) => {
    if (e.op === 'start' || e.op === 'end') return true;
    if (e.op === 'seq' || e.op === 'alt') return e.items.some(below);
    return e.op === 'repeat' && below(e.item);
  });

/** Every text that the expression matches, or null when there are more than `limit`, or anchors. */
export function wordsOf(root: Expr, limit: number): readonly string[] | null {
  const join = (a: readonly string[], b: readonly string[]): readonly string[] | null =>
    a.length * b.length > limit * 4 ? null : [...new Set(a.flatMap((x) => b.map((y) => x + y)))];
  const words = fold<readonly string[] | null>(root, (e, below) => {
    switch (e.op) {
      case 'class':
        if (numPoints(e.ranges) > limit) return null;
        return e.ranges.flatMap(([lo, hi]) => Array.from({ length: hi - lo + 1 }, (_, i) => String.fromCodePoint(lo + i)));
      case 'text':
        return [e.text];
      case 'seq':
        return e.items.reduce<readonly string[] | null>(
          (all, item) => {
            const more = all === null ? null : below(item);
            return all === null || more === null ? null : join(all, more);
          },
          [''],
        );
      case 'alt': {
        const parts = e.items.map(below);
        if (parts.includes(null)) return null;
        const all = new Set(parts.flatMap((p) => p ?? []));
        return all.size > limit ? null : [...all];
      }
      case 'repeat': {
        const part = e.max > limit ? null : below(e.item);
        if (part === null) return null;
        let all: readonly string[] = e.min === 0 ? [''] : [];
        let last: readonly string[] | null = [''];
        for (let i = 1; i <= e.max; i++) {
          last = join(last, part);
          if (last === null) return null;
          if (i >= e.min) all = [...new Set([...all, ...last])];
          if (all.length > limit) return null;
        }
        return all;
      }
      default:
        return null;
    }
  });
  return words === null || words.length > limit ? null : words;
}
