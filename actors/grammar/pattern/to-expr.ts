/**
 * An automaton back to an Expr, for the grammar. Where no circle is longer than one state, each state becomes an expression that shares
 * those of its successors: as many rules as states, and no rule that calls itself, for which the engine would need a stack. Else states
 * are eliminated one by one, the least connected first (Brzozowski and McCluskey), parts still shared.
 */
import type { Meter } from '../limits.js';
import { type Dfa, labels } from './dfa.js';
import { alt, EMPTY, type Expr, NEVER, seq, star } from './expr.js';

export function exprOf(a: Dfa, meter: Meter): Expr {
  const order = topological(a, meter);
  return order === null ? eliminate(a, meter) : straight(a, order, meter);
}

/** The states, each after its successors, or null when there is a circle of more than one. */
function topological(a: Dfa, meter: Meter): readonly number[] | null {
  const missing = a.edges.map((list, from) => new Set(list.flatMap(({ to }) => (to === from ? [] : [to]))).size);
  const into: Set<number>[] = a.edges.map(() => new Set());
  a.edges.forEach((list, from) => {
    for (const { to } of list) if (to !== from) into[to]!.add(from);
  });
  const order = missing.flatMap((n, state) => (n === 0 ? [state] : []));
  for (const state of order) {
    meter.tick();
    for (const from of into[state]!) if (--missing[from]! === 0) order.push(from);
  }
  return order.length === a.edges.length ? order : null;
}

function straight(a: Dfa, order: readonly number[], meter: Meter): Expr {
  const made: Expr[] = [];
  for (const state of order) {
    meter.tick();
    const next = labels(a, state);
    const own = next.get(state);
    const options = [...next].filter(([to]) => to !== state).map(([to, ranges]) => seq({ op: 'class', ranges }, made[to]!));
    const rest = alt(...options, ...(a.accepts[state] ? [EMPTY] : []));
    made[state] = own === undefined ? rest : seq(star({ op: 'class', ranges: own }), rest);
  }
  return made[0] ?? NEVER;
}

function eliminate(a: Dfa, meter: Meter): Expr {
  const start = a.edges.length;
  const end = start + 1;
  const out: Map<number, Expr>[] = a.edges.map((_, i) => new Map([...labels(a, i)].map(([to, ranges]) => [to, { op: 'class', ranges }])));
  out.push(new Map([[0, EMPTY]]), new Map());
  const into: Set<number>[] = out.map(() => new Set());
  out.forEach((edges, from) => {
    for (const to of edges.keys()) into[to]!.add(from);
  });
  a.accepts.forEach((ok, state) => {
    if (!ok) return;
    out[state]!.set(end, EMPTY);
    into[end]!.add(state);
  });
  const left = new Set(a.edges.keys());
  while (left.size > 0) {
    let best = -1;
    let cost = Infinity;
    for (const state of left) {
      meter.tick();
      const c = into[state]!.size * out[state]!.size;
      if (c < cost) [best, cost] = [state, c];
    }
    left.delete(best);
    const loop = out[best]!.get(best);
    for (const from of into[best]!) {
      if (from === best) continue;
      const first = loop === undefined ? out[from]!.get(best)! : seq(out[from]!.get(best)!, star(loop));
      for (const [to, last] of out[best]!) {
        if (to === best) continue;
        meter.addStates(1);
        out[from]!.set(to, alt(out[from]!.get(to) ?? NEVER, seq(first, last)));
        into[to]!.add(from);
      }
      out[from]!.delete(best);
    }
    for (const to of out[best]!.keys()) into[to]!.delete(best);
  }
  return out[start]!.get(end) ?? NEVER;
}
