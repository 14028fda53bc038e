/**
 * The figures of a run, defined as ATOM's and vLLM's benchmarks define them (`benchmark_serving.py`):
 *
 *   send ---- TTFT ----> first chunk -- ITL --> chunk -- ITL --> ... last chunk
 *   send ------------------------------ E2EL ----------------------> last chunk
 *   TPOT = (E2EL - TTFT) / (output tokens - 1), only of answers with more than one token
 *
 * ITL are the gaps between chunks, of all requests together, whatever number of tokens a chunk holds. Only answers that came to their end
 * count. Percentiles are interpolated, the deviation is that of the population, as numpy's. Pure.
 */
import type { Sample } from './request.js';

export const metricNames = ['ttft', 'tpot', 'itl', 'e2el'] as const;
export type MetricName = (typeof metricNames)[number];

/** Milliseconds that a request may take at most to count as good. */
export type Goodput = Readonly<Partial<Record<GoodputName, number>>>;
export const goodputNames = ['ttft', 'tpot', 'e2el'] as const;
export type GoodputName = (typeof goodputNames)[number];

/** Of one metric, in ms. */
export interface Spread {
  readonly mean: number;
  readonly median: number;
  readonly std: number;
  /** Parallel to the percentiles asked for. */
  readonly percentiles: readonly number[];
}

export interface Metrics {
  readonly durationS: number;
  readonly completed: number;
  readonly failed: number;
  readonly totalInput: number;
  readonly totalOutput: number;
  readonly chunks: number;
  /** All a second. */
  readonly requestThroughput: number;
  readonly outputThroughput: number;
  readonly totalThroughput: number;
  /** Null when no limits were given. */
  readonly goodput: number | null;
  /** Requests in flight on average: the sum of E2EL over the duration. */
  readonly concurrency: number;
  readonly spreads: Readonly<Record<MetricName, Spread>>;
}

export interface Wanted {
  readonly percentiles: readonly number[];
  readonly goodput: Goodput | null;
}

/** Milliseconds of one answer. */
export interface RequestTimes {
  readonly ttft: number;
  /** 0 for an answer of one token. */
  readonly tpot: number;
  readonly e2el: number;
}

export function timesOf({ sentMs, chunkMs, outputLen }: Sample): RequestTimes {
  const ttft = (chunkMs[0] ?? sentMs) - sentMs;
  const e2el = (chunkMs.at(-1) ?? sentMs) - sentMs;
  return { ttft, e2el, tpot: outputLen > 1 ? (e2el - ttft) / (outputLen - 1) : 0 };
}

export function gaps({ chunkMs }: Sample): number[] {
  return chunkMs.slice(1).map((at, i) => at - (chunkMs[i] ?? at));
}

export function computeMetrics(samples: readonly Sample[], durationS: number, { percentiles, goodput }: Wanted): Metrics {
  const good = samples.filter((s) => s.error === null);
  const times = good.map(timesOf);
  const totalInput = sum(good.map((s) => s.inputLen));
  const totalOutput = sum(good.map((s) => s.outputLen));
  const perSecond = (amount: number): number => (durationS > 0 ? amount / durationS : 0);
  const spread = (values: readonly number[]): Spread => spreadOf(values, percentiles);
  return {
    durationS,
    completed: good.length,
    failed: samples.length - good.length,
    totalInput,
    totalOutput,
    chunks: sum(good.map((s) => s.chunkMs.length)),
    requestThroughput: perSecond(good.length),
    outputThroughput: perSecond(totalOutput),
    totalThroughput: perSecond(totalInput + totalOutput),
    goodput: goodput === null ? null : perSecond(times.filter((t) => meets(t, goodput)).length),
    concurrency: perSecond(sum(times.map((t) => t.e2el)) / 1000),
    spreads: {
      ttft: spread(times.map((t) => t.ttft)),
      tpot: spread(times.filter((_, i) => (good[i]?.outputLen ?? 0) > 1).map((t) => t.tpot)),
      itl: spread(good.flatMap(gaps)),
      e2el: spread(times.map((t) => t.e2el)),
    },
  };
}

const meets = (times: RequestTimes, limits: Goodput): boolean =>
  goodputNames.every((name) => times[name] <= (limits[name] ?? Number.POSITIVE_INFINITY));

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

function spreadOf(values: readonly number[], percentiles: readonly number[]): Spread {
  const sorted = Float64Array.from(values).sort();
  const mean = values.length === 0 ? 0 : sum(values) / values.length;
  const variance = values.length === 0 ? 0 : sum(values.map((v) => (v - mean) ** 2)) / values.length;
  return {
    mean,
    median: percentile(sorted, 50),
    std: Math.sqrt(variance),
    percentiles: percentiles.map((p) => percentile(sorted, p)),
  };
}

/** `sorted` ascending; 0 where there is nothing, as in ATOM's files. */
export function percentile(sorted: Float64Array, p: number): number {
  const at = (p / 100) * (sorted.length - 1);
  const below = sorted[Math.floor(at)] ?? 0;
  const above = sorted[Math.ceil(at)] ?? below;
  return below + (above - below) * (at - Math.floor(at));
}
