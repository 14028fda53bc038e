/**
 * An Expr as a nondeterministic automaton (Thompson's construction), anchors as edges that may be passed only at an end of the text.
 * `matches` runs it over a text in time linear in both, unlike a backtracking RegExp on a client's pattern.
 */
import type { Meter } from '../limits.js';
import type { Expr } from './expr.js';
import { hasPoint, type Range, type Ranges } from './ranges.js';

export interface Nfa {
  readonly start: number;
  readonly final: number;
  /** By state: states reached without a character; with `^`; with `$`. */
  readonly free: readonly (readonly number[])[];
  readonly atStart: readonly (readonly number[])[];
  readonly atEnd: readonly (readonly number[])[];
  /** By state: characters that lead on. */
  readonly steps: readonly (readonly { readonly ranges: Ranges; readonly to: number }[])[];
}

/**
 * Builds from the end: a part that several places use before the same end, as the states of an automaton that was written as an
 * expression, is built once.
 */
class Builder {
  readonly free: number[][] = [];
  readonly atStart: number[][] = [];
  readonly atEnd: number[][] = [];
  readonly steps: { ranges: Ranges; to: number }[][] = [];
  readonly #known = new Map<Expr, Map<number, number>>();
  readonly #meter: Meter;

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  state(): number {
    this.#meter.addStates(1);
    this.atStart.push([]);
    this.atEnd.push([]);
    this.steps.push([]);
    return this.free.push([]) - 1;
  }

  /** The state from which the expression leads to `to`. */
  before(e: Expr, to: number): number {
    const ends = this.#known.get(e) ?? new Map<number, number>();
    this.#known.set(e, ends);
    const known = ends.get(to);
    if (known !== undefined) return known;
    const made = this.#make(e, to);
    ends.set(to, made);
    return made;
  }

  #make(e: Expr, to: number): number {
    switch (e.op) {
      case 'class':
        return this.#step(e.ranges, to);
      case 'text':
        return [...e.text].reduceRight((at, c) => this.#step([[c.codePointAt(0) ?? 0, c.codePointAt(0) ?? 0] satisfies Range], at), to);
      case 'seq':
        return e.items.reduceRight((at, item) => this.before(item, at), to);
      case 'alt': {
        const from = this.state();
        for (const item of e.items) this.free[from]!.push(this.before(item, to));
        return from;
      }
      case 'repeat':
        return this.#repeat(e, to);
      case 'start':
      case 'end': {
        const from = this.state();
        (e.op === 'start' ? this.atStart : this.atEnd)[from]!.push(to);
        return from;
      }
    }
  }

  #step(ranges: Ranges, to: number): number {
    const from = this.state();
    this.steps[from]!.push({ ranges, to });
    return from;
  }

  #repeat(e: Expr & { op: 'repeat' }, to: number): number {
    let at = to;
    if (e.max === Infinity) {
      at = this.state();
      this.free[at]!.push(this.before(e.item, at), to);
    } else {
      for (let i = e.min; i < e.max; i++) {
        const from = this.state();
        this.free[from]!.push(this.before(e.item, at), to);
        at = from;
      }
    }
    for (let i = 0; i < e.min; i++) at = this.before(e.item, at);
    return at;
  }
}

export function nfaOf(e: Expr, meter: Meter): Nfa {
  const builder = new Builder(meter);
  const final = builder.state();
  const start = builder.before(e, final);
  return { start, final, free: builder.free, atStart: builder.atStart, atEnd: builder.atEnd, steps: builder.steps };
}

/** Adds to `states` what can be reached from them without a character, `^` and `$` passed where the flags say. */
export function close(
  nfa: Nfa,
  states: Set<number>,
  anchors: { readonly start: boolean; readonly end: boolean },
  meter: Meter,
): Set<number> {
  for (const state of states) {
    meter.tick();
    for (const to of nfa.free[state]!) states.add(to);
    if (anchors.start) for (const to of nfa.atStart[state]!) states.add(to);
    if (anchors.end) for (const to of nfa.atEnd[state]!) states.add(to);
  }
  return states;
}

/** Whether the pattern is found in the text: anywhere, as JSON Schema's `pattern`. */
export function matches(nfa: Nfa, subject: string, meter: Meter): boolean {
  const points = [...subject];
  let states = new Set<number>();
  for (let i = 0; i <= points.length; i++) {
    states.add(nfa.start);
    close(nfa, states, { start: i === 0, end: i === points.length }, meter);
    if (states.has(nfa.final)) return true;
    const point = points[i]?.codePointAt(0);
    if (point === undefined) break;
    const next = new Set<number>();
    for (const state of states) for (const { ranges, to } of nfa.steps[state]!) if (hasPoint(ranges, point)) next.add(to);
    states = next;
  }
  return false;
}
