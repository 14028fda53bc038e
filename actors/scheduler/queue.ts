/**
 * Who comes first: the policy as pure functions, and the waiting sequences in that order. Runs in the scheduler thread.
 *
 * Running sequences are ordered by age (rank, arrival, admission, index); the last one is the victim when blocks run out. Waiting
 * ones likewise, except that within a rank those that have run before go ahead of those that have not, and that among the latter
 * clients take turns (actors/client-turns.ts). A new policy is a new `rankOf`.
 */
import type { Sequence } from './request.js';

/** The primary key of the order, smaller first: a constant under FCFS, else the request's priority. */
export function rankOf(policy: 'fcfs' | 'priority', priority: number): number {
  return policy === 'priority' ? priority : 0;
}

/** Negative when `a` is served before `b`. Total: equal only for the same sequence. */
export function byAge(a: Sequence, b: Sequence): number {
  const p = a.request;
  const q = b.request;
  return p.rank - q.rank || p.arrivalMs - q.arrivalMs || p.ordinal - q.ordinal || a.index - b.index;
}

/** Order of admission: preempted and resumed sequences first within their rank, by age; then the others, by turn and age. */
export function byTurn(a: Sequence, b: Sequence): number {
  const p = a.request;
  const q = b.request;
  return p.rank - q.rank || Number(q.started) - Number(p.started) || (p.started ? 0 : p.turn - q.turn) || byAge(a, b);
}

/** An array kept in an order; insertion and removal by binary search. */
export class OrderedList {
  readonly items: Sequence[] = [];
  private readonly order: (a: Sequence, b: Sequence) => number;

  constructor(order: (a: Sequence, b: Sequence) => number) {
    this.order = order;
  }

  get size(): number {
    return this.items.length;
  }

  add(sequence: Sequence): void {
    this.items.splice(this.place(sequence), 0, sequence);
  }

  /** Index of a listed sequence, -1 when it is not listed. */
  indexOf(sequence: Sequence): number {
    const at = this.place(sequence);
    return this.items[at] === sequence ? at : -1;
  }

  /** Returns whether it was listed. */
  remove(sequence: Sequence): boolean {
    const at = this.indexOf(sequence);
    if (at === -1) return false;
    this.items.splice(at, 1);
    return true;
  }

  /** Index of the first item not before `sequence`. */
  private place(sequence: Sequence): number {
    let low = 0;
    let high = this.items.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.order(this.items[middle]!, sequence) < 0)
        low = middle + 1; // low <= middle < high <= length
      else high = middle;
    }
    return low;
  }
}
