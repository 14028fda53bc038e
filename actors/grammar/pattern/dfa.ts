/** Deterministic automata over code points: made from patterns by the subset construction, combined. */
import type { Meter } from '../limits.js';
import type { Expr } from './expr.js';
import { close, type Nfa, nfaOf } from './nfa.js';
import { ALL, type Ranges, unionRanges } from './ranges.js';

export interface Edge {
  readonly lo: number;
  readonly hi: number;
  readonly to: number;
}
/** State 0 starts. Edges of a state are sorted and disjoint; a character without one is not accepted. */
export interface Dfa {
  readonly edges: readonly (readonly Edge[])[];
  readonly accepts: readonly boolean[];
}

/** All texts of `min` to `max` (or Infinity) characters; it has as many states. */
export function lengthDfa(min: number, max: number, meter: Meter): Dfa {
  const last = max === Infinity ? min : max;
  meter.addStates(last + 1);
  const to = (i: number): readonly Edge[] =>
    i < last ? ALL.map(([lo, hi]) => ({ lo, hi, to: i + 1 })) : max === Infinity ? ALL.map(([lo, hi]) => ({ lo, hi, to: i })) : [];
  return { edges: Array.from({ length: last + 1 }, (_, i) => to(i)), accepts: Array.from({ length: last + 1 }, (_, i) => i >= min) };
}

/** `search`: the texts in which the expression is found; else those that it matches from the first to the last character. */
export function dfaOf(e: Expr, search: boolean, meter: Meter): Dfa {
  return trim(determinize(nfaOf(e, meter), search, meter), meter);
}

function determinize(nfa: Nfa, search: boolean, meter: Meter): Dfa {
  const symbols = symbolsOf(nfa);
  const edges: Edge[][] = [];
  const accepts: boolean[] = [];
  const numbers = new Map<string, number>();
  const sets: Set<number>[] = [];
  const numberOf = (states: Set<number>, first: boolean): number => {
    // Once found, a search accepts whatever follows: one state, the final one alone, stands for all of those.
    const found = search && states.has(nfa.final);
    const kept = found ? [-1] : [...states].sort((a, b) => a - b);
    const key = `${first ? '^' : ''}${kept.join()}`;
    const known = numbers.get(key);
    if (known !== undefined) return known;
    meter.addStates(1);
    numbers.set(key, sets.length);
    sets.push(found ? new Set([-1]) : states);
    return sets.length - 1;
  };
  numberOf(close(nfa, new Set([nfa.start]), { start: true, end: false }, meter), true);
  for (let at = 0; at < sets.length; at++) {
    const states = sets[at]!;
    if (states.has(-1)) {
      edges.push(ALL.map(([lo, hi]) => ({ lo, hi, to: at })));
      accepts.push(true);
      continue;
    }
    accepts.push(close(nfa, new Set(states), { start: at === 0, end: true }, meter).has(nfa.final));
    const next = symbols.map(() => new Set<number>());
    for (const state of states) {
      for (const step of nfa.steps[state]!) {
        symbols.forEach(([lo], i) => {
          meter.tick();
          if (step.ranges.some(([a, b]) => a <= lo && lo <= b)) next[i]!.add(step.to);
        });
      }
    }
    const list: Edge[] = [];
    symbols.forEach(([lo, hi], i) => {
      const to = next[i]!;
      if (search) to.add(nfa.start);
      if (to.size > 0) list.push({ lo, hi, to: numberOf(close(nfa, to, { start: false, end: false }, meter), false) });
    });
    edges.push(merged(list));
  }
  return { edges, accepts };
}

/** The coarsest ranges of which every class of the automaton is a union. */
function symbolsOf(nfa: Nfa): Ranges {
  const cuts = new Set<number>(ALL.flatMap(([lo, hi]) => [lo, hi + 1]));
  for (const steps of nfa.steps) for (const { ranges } of steps) for (const [lo, hi] of ranges) cuts.add(lo).add(hi + 1);
  const sorted = [...cuts].sort((a, b) => a - b);
  return sorted.slice(0, -1).flatMap((lo, i) => (lo === 0xd800 ? [] : [[lo, sorted[i + 1]! - 1] as const]));
}

function merged(list: readonly Edge[]): Edge[] {
  const out: Edge[] = [];
  for (const edge of list) {
    const last = out.at(-1);
    if (last !== undefined && last.to === edge.to && last.hi + 1 === edge.lo) out[out.length - 1] = { ...last, hi: edge.hi };
    else out.push(edge);
  }
  return out;
}

/** Texts of both. */
export function intersect(a: Dfa, b: Dfa, meter: Meter): Dfa {
  const numbers = new Map<number, number>([[0, 0]]);
  const pairs: [number, number][] = [[0, 0]];
  const edges: Edge[][] = [];
  for (let at = 0; at < pairs.length; at++) {
    const [p, q] = pairs[at]!;
    const list: Edge[] = [];
    const [left, right] = [a.edges[p]!, b.edges[q]!];
    for (let i = 0, j = 0; i < left.length && j < right.length; ) {
      meter.tick();
      const [x, y] = [left[i]!, right[j]!];
      const [lo, hi] = [Math.max(x.lo, y.lo), Math.min(x.hi, y.hi)];
      if (lo <= hi) {
        const key = x.to * b.edges.length + y.to;
        let to = numbers.get(key);
        if (to === undefined) {
          meter.addStates(1);
          to = pairs.push([x.to, y.to]) - 1;
          numbers.set(key, to);
        }
        list.push({ lo, hi, to });
      }
      if (x.hi < y.hi) i++;
      else j++;
    }
    edges.push(merged(list));
  }
  return trim({ edges, accepts: pairs.map(([p, q]) => a.accepts[p]! && b.accepts[q]!) }, meter);
}

/** All texts that are not of `a`. */
export function complement(a: Dfa, meter: Meter): Dfa {
  const sink = a.edges.length;
  const edges = [...a.edges, []].map((list) => {
    const gaps: Edge[] = [];
    for (const [lo, hi] of ALL) {
      let next = lo;
      for (const edge of list) {
        if (edge.hi < lo || edge.lo > hi) continue;
        if (edge.lo > next) gaps.push({ lo: next, hi: edge.lo - 1, to: sink });
        next = edge.hi + 1;
      }
      if (next <= hi) gaps.push({ lo: next, hi, to: sink });
    }
    return [...list, ...gaps].sort((x, y) => x.lo - y.lo);
  });
  return trim({ edges, accepts: [...a.accepts.map((x) => !x), true] }, meter);
}

/** Without states from which no text is accepted. An automaton that accepts nothing has one state. */
export function trim(a: Dfa, meter: Meter): Dfa {
  const into: number[][] = a.edges.map(() => []);
  a.edges.forEach((list, from) => {
    for (const edge of list) into[edge.to]!.push(from);
  });
  const live = new Set(a.accepts.flatMap((ok, i) => (ok ? [i] : [])));
  for (const state of live) {
    meter.tick();
    for (const from of into[state]!) live.add(from);
  }
  if (live.size === a.edges.length) return a;
  if (!live.has(0)) return { edges: [[]], accepts: [false] };
  const kept = a.edges.flatMap((_, i) => (live.has(i) ? [i] : []));
  const number = new Map(kept.map((old, i) => [old, i]));
  return {
    edges: kept.map((old) => a.edges[old]!.flatMap((edge) => (live.has(edge.to) ? [{ ...edge, to: number.get(edge.to)! }] : []))),
    accepts: kept.map((old) => a.accepts[old]!),
  };
}

export const acceptsNothing = (a: Dfa): boolean => !a.accepts.includes(true);

/** The characters of each pair of states, as sets. */
export function labels(a: Dfa, from: number): ReadonlyMap<number, Ranges> {
  const out = new Map<number, Ranges>();
  for (const { lo, hi, to } of a.edges[from]!) out.set(to, unionRanges(out.get(to) ?? [], [[lo, hi]]));
  return out;
}
