/** Counts values by size, for Prometheus. Any thread; an observation is a search among some twenty edges, and allocates nothing. */
import type { HistogramCounts } from '../messages/calls.js';

export class Histogram implements HistogramCounts {
  readonly edges: readonly number[];
  readonly counts: number[];
  sum = 0;

  /** `edges`: ascending. */
  constructor(edges: readonly number[]) {
    this.edges = edges;
    this.counts = new Array<number>(edges.length + 1).fill(0);
  }

  observe(value: number): void {
    const { edges, counts } = this;
    let low = 0;
    let high = edges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (edges[middle]! < value)
        low = middle + 1; // middle < length
      else high = middle;
    }
    counts[low]!++; // low <= edges.length
    this.sum += value;
  }

  /** As plain data, to be sent. */
  snapshot(): HistogramCounts {
    return { edges: this.edges, counts: [...this.counts], sum: this.sum };
  }
}
