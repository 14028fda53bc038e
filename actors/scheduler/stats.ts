/**
 * Counters of the scheduler, and percentiles over the last steps. Runs in the scheduler thread; cheap enough to be read every turn.
 */
import type { SchedulerStats, StepHistograms } from '../messages/calls.js';
import { Histogram } from '../runtime/histogram.js';
import type { DraftCounters } from './draft-counts.js';
import type { KvCache } from './kv-cache.js';

/** Exact percentiles of the last `capacity` values: a ring in order of arrival beside the same values in order of size. */
export class RecentValues {
  private readonly ring: Float64Array;
  private readonly sorted: Float64Array;
  private size = 0;
  private oldest = 0;

  constructor(capacity: number) {
    this.ring = new Float64Array(capacity);
    this.sorted = new Float64Array(capacity);
  }

  add(value: number): void {
    const { ring, sorted } = this;
    if (this.size === ring.length) {
      const leaving = this.place(ring[this.oldest]!); // oldest < capacity
      sorted.copyWithin(leaving, leaving + 1, this.size);
      this.size--;
    }
    const at = this.place(value);
    sorted.copyWithin(at + 1, at, this.size);
    sorted[at] = value;
    this.size++;
    ring[this.oldest] = value;
    this.oldest = (this.oldest + 1) % ring.length;
  }

  /** Smallest value that at least the share `p` of the values does not exceed; 0 when there are none. */
  percentile(p: number): number {
    if (this.size === 0) return 0;
    return this.sorted[Math.max(0, Math.ceil(p * this.size) - 1)] ?? 0;
  }

  /** Index of the first sorted value >= `value`. */
  private place(value: number): number {
    let low = 0;
    let high = this.size;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.sorted[middle]! < value)
        low = middle + 1; // middle < size
      else high = middle;
    }
    return low;
  }
}

/** Steps over which percentiles are taken. */
const RECENT_STEPS = 1024;
const STEP_SECONDS = [
  0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;
/** vLLM's, of vllm:iteration_tokens_total. */
const STEP_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384] as const;

export class StatsCounters {
  /** Null where nothing is drafted. */
  readonly speculation: DraftCounters | null;
  finished = 0;
  aborted = 0;
  preempted = 0;
  promptTokens = 0;
  generatedTokens = 0;
  prefixHitTokens = 0;
  private steps = 0;
  private readonly execMs = new RecentValues(RECENT_STEPS);
  private readonly stepSeconds = new Histogram(STEP_SECONDS);
  private readonly stepTokens = new Histogram(STEP_TOKENS);

  constructor(speculation: DraftCounters | null = null) {
    this.speculation = speculation;
  }

  /** A step of `numTokens` tokens is done. */
  step(execUs: number, numTokens: number): void {
    this.steps++;
    this.execMs.add(execUs / 1000);
    this.stepSeconds.observe(execUs / 1e6);
    this.stepTokens.observe(numTokens);
  }

  histograms(): StepHistograms {
    return { seconds: this.stepSeconds.snapshot(), tokens: this.stepTokens.snapshot() };
  }

  /** total = used + cached + free: held by live requests, free with content worth keeping, free without. */
  snapshot(now: { readonly requests: number; readonly running: number; readonly kv: KvCache }): SchedulerStats {
    const { requests, running } = now;
    const { pool, swap, blockSize } = now.kv;
    const swapped = swap.numRequests;
    return {
      requests: {
        running,
        waiting: requests - running - swapped,
        swapped,
        finished_total: this.finished,
        aborted_total: this.aborted,
        preempted_total: this.preempted,
      },
      kv: {
        block_size: blockSize,
        total_blocks: pool.size,
        used_blocks: pool.size - pool.numFree,
        cached_blocks: pool.numCached,
        free_blocks: pool.numFree - pool.numCached,
        swap_total: swap.size,
        swap_used: swap.used,
      },
      tokens: { prompt_total: this.promptTokens, generated_total: this.generatedTokens, prefix_hit_total: this.prefixHitTokens },
      step: { count: this.steps, p50_ms: this.execMs.percentile(0.5), p99_ms: this.execMs.percentile(0.99) },
      ...(this.speculation === null ? {} : { speculation: this.speculation.snapshot() }),
    };
  }
}
