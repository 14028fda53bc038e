/**
 * The result of a run as JSON, with the keys of ATOM's result file, seconds in arrays and milliseconds in names that end so. `request_goodput:`
 * is spelled as there, colon and all, since scripts read it; `request_goodput` is the same. Pure.
 */
import { gaps, type MetricName, type Metrics, timesOf } from './metrics.js';
import type { Sample } from './request.js';

export interface RunFacts {
  readonly date: Date;
  readonly backend: string;
  readonly model: string;
  readonly tokenizer: string;
  readonly bestOf: number;
  readonly numPrompts: number;
  readonly metadata: Readonly<Record<string, string>>;
  /** Infinity: all at once. */
  readonly requestRate: number;
  readonly burstiness: number;
  readonly maxConcurrency: number | null;
  /** Which metrics get mean, median, deviation and percentiles. */
  readonly metrics: readonly MetricName[];
  readonly percentiles: readonly number[];
}

type Json = Readonly<Record<string, unknown>>;

/** Everything but the arrays. */
export function resultSummary(facts: RunFacts, m: Metrics): Json {
  const { requestRate } = facts;
  return {
    date: stamp(facts.date),
    backend: facts.backend,
    model_id: facts.model,
    tokenizer_id: facts.tokenizer,
    best_of: facts.bestOf,
    num_prompts: facts.numPrompts,
    ...facts.metadata,
    request_rate: Number.isFinite(requestRate) ? requestRate : 'inf',
    burstiness: facts.burstiness,
    max_concurrency: facts.maxConcurrency,
    duration: m.durationS,
    completed: m.completed,
    total_input_tokens: m.totalInput,
    total_output_tokens: m.totalOutput,
    request_throughput: m.requestThroughput,
    request_goodput: m.goodput,
    'request_goodput:': m.goodput,
    output_throughput: m.outputThroughput,
    total_token_throughput: m.totalThroughput,
    ...spreads(facts, m),
  };
}

function spreads({ metrics, percentiles }: RunFacts, m: Metrics): Json {
  return Object.fromEntries(
    metrics.flatMap((name) => {
      const spread = m.spreads[name];
      return [
        [`mean_${name}_ms`, spread.mean],
        [`median_${name}_ms`, spread.median],
        [`std_${name}_ms`, spread.std],
        ...percentiles.map((p, i) => [`p${p}_${name}_ms`, spread.percentiles[i]]),
      ];
    }),
  ) as Json;
}

/** One entry a request, in the order of the requests; 0, nothing and '' where it failed. */
export function resultArrays(samples: readonly Sample[]): Json {
  const seconds = (ms: number): number => ms / 1000;
  const done = (s: Sample): boolean => s.error === null;
  return {
    input_lens: samples.map((s) => s.inputLen),
    output_lens: samples.map((s) => s.outputLen),
    ttfts: samples.map((s) => (done(s) ? seconds(timesOf(s).ttft) : 0)),
    itls: samples.map((s) => (done(s) ? gaps(s).map(seconds) : [])),
    generated_texts: samples.map((s) => s.text),
    errors: samples.map((s) => s.error ?? ''),
  };
}

/** What --save-detailed adds. */
export function resultDetails(samples: readonly Sample[], startMs: number): Json {
  const of = (value: (s: Sample) => number): number[] => samples.map((s) => (s.error === null ? value(s) / 1000 : 0));
  return {
    start_times: samples.map((s) => (s.sentMs - startMs) / 1000),
    tpots: of((s) => timesOf(s).tpot),
    e2els: of((s) => timesOf(s).e2el),
    num_chunks: samples.map((s) => s.chunkMs.length),
  };
}

/** ATOM's name of a result file. */
export function resultFileName({ backend, requestRate, maxConcurrency, model, date }: RunFacts): string {
  const concurrency = maxConcurrency === null ? '' : `-concurrency${maxConcurrency}`;
  const rate = !Number.isFinite(requestRate) ? 'inf' : Number.isInteger(requestRate) ? requestRate.toFixed(1) : String(requestRate);
  return `${backend}-${rate}qps${concurrency}-${model.split('/').at(-1)}-${stamp(date)}.json`;
}

/** Local time as 20261122-143005. */
function stamp(date: Date): string {
  const two = (n: number): string => String(n).padStart(2, '0');
  const day = `${date.getFullYear()}${two(date.getMonth() + 1)}${two(date.getDate())}`;
  return `${day}-${two(date.getHours())}${two(date.getMinutes())}${two(date.getSeconds())}`;
}
