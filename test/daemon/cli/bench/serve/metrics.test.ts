/** Figures of `bench serve` from timelines made by hand, and the keys and name of its result file. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { computeMetrics, percentile, timesOf } from '../../../../../daemon/cli/bench/serve/metrics.js';
import type { Sample } from '../../../../../daemon/cli/bench/serve/request.js';
import { type RunFacts, resultArrays, resultDetails, resultFileName, resultSummary } from '../../../../../daemon/cli/bench/serve/result.js';

const request = { prompt: [1], inputLen: 10, outputLen: 4 };
const sample = (sentMs: number, chunkMs: readonly number[], outputLen: number, error: string | null = null): Sample => ({
  ...{ request, sentMs, chunkMs, outputLen, error },
  inputLen: 10,
  text: 'x'.repeat(chunkMs.length),
});

/** Chunks at 50, 60 and 90 ms of five tokens; one chunk of one token; one that failed. */
const samples = [sample(1000, [1050, 1060, 1090], 5), sample(1100, [1120], 1), sample(1200, [1210, 1300], 0, 'cut')];
const close = (actual: number, wanted: number): void => assert.ok(Math.abs(actual - wanted) < 1e-9, `${actual} is not ${wanted}`);

test('TTFT, TPOT, ITL and E2EL are what their definitions say, over answers that came to their end', () => {
  const m = computeMetrics(samples, 2, { percentiles: [0, 50, 99], goodput: null });
  assert.deepEqual([m.completed, m.failed, m.totalInput, m.totalOutput, m.chunks], [2, 1, 20, 6, 4]);
  assert.deepEqual([m.requestThroughput, m.outputThroughput, m.totalThroughput, m.goodput], [1, 3, 13, null]);
  const { ttft, tpot, itl, e2el } = m.spreads;
  assert.deepEqual([ttft.mean, ttft.median, ttft.std], [35, 35, 15]);
  close(ttft.percentiles[2] ?? 0, 20 + 0.99 * 30);
  assert.deepEqual(tpot, { mean: 10, median: 10, std: 0, percentiles: [10, 10, 10] }, '(90 - 50) / (5 - 1), and nothing of one token');
  assert.deepEqual([itl.mean, itl.median, itl.std, itl.percentiles[0]], [20, 20, 10, 10]);
  assert.deepEqual([e2el.mean, e2el.std], [55, 35]);
  close(m.concurrency, 0.11 / 2);
});

test('goodput counts answers within every limit; an answer of one token has a TPOT of 0', () => {
  const good = (goodput: object): number | null => computeMetrics(samples, 1, { percentiles: [], goodput }).goodput;
  assert.deepEqual([good({ ttft: 20 }), good({ ttft: 19.9 }), good({ tpot: 9 }), good({ tpot: 10, e2el: 90 })], [1, 0, 1, 2]);
  assert.equal(good({ ttft: 49, tpot: 5, e2el: 20 }), 1);
});

test('a run without an answer has zeros, as in the files of others', () => {
  const m = computeMetrics([sample(0, [], 0, 'refused')], 1, { percentiles: [99], goodput: { ttft: 1 } });
  assert.deepEqual(m.spreads.ttft, { mean: 0, median: 0, std: 0, percentiles: [0] });
  assert.deepEqual([m.completed, m.failed, m.goodput, m.concurrency], [0, 1, 0, 0]);
});

test('percentiles lie between the neighbours', () => {
  const sorted = Float64Array.of(1, 2, 4, 8);
  assert.deepEqual(
    [0, 25, 50, 90, 100].map((p) => percentile(sorted, p)),
    [1, 1.75, 3, 6.800000000000001, 8],
  );
});

const facts: RunFacts = {
  date: new Date(2026, 10, 22, 9, 5, 7),
  backend: 'vllm',
  model: 'some/model',
  tokenizer: 'some/model',
  bestOf: 1,
  numPrompts: 3,
  metadata: { card: 'H100' },
  requestRate: Number.POSITIVE_INFINITY,
  burstiness: 1,
  maxConcurrency: 16,
  metrics: ['ttft', 'tpot', 'itl'],
  percentiles: [50, 99.9],
};

test("the result has the keys of ATOM's file, with the spelling of goodput that scripts know", () => {
  const m = computeMetrics(samples, 2, { percentiles: facts.percentiles, goodput: { ttft: 20 } });
  const result = { ...resultSummary(facts, m), ...resultArrays(samples) };
  const spreads = facts.metrics.flatMap((name) => ['mean_', 'median_', 'std_', 'p50_', 'p99.9_'].map((kind) => `${kind}${name}_ms`));
  assert.deepEqual(
    Object.keys(result).sort(),
    [
      ...['date', 'backend', 'model_id', 'tokenizer_id', 'best_of', 'num_prompts', 'card', 'request_rate', 'burstiness', 'max_concurrency'],
      ...[
        'duration',
        'completed',
        'total_input_tokens',
        'total_output_tokens',
        'request_throughput',
        'request_goodput:',
        'request_goodput',
      ],
      ...['output_throughput', 'total_token_throughput', 'input_lens', 'output_lens', 'ttfts', 'itls', 'generated_texts', 'errors'],
      ...spreads,
    ].sort(),
  );
  const {
    date,
    request_rate: rate,
    'request_goodput:': goodput,
    ttfts,
    itls,
    output_lens: lens,
    errors,
  } = result as Record<string, unknown>;
  assert.deepEqual([date, rate, goodput], ['20261122-090507', 'inf', 0.5]);
  assert.deepEqual(
    [ttfts, itls],
    [
      [0.05, 0.02, 0],
      [[0.01, 0.03], [], []],
    ],
  );
  assert.deepEqual(
    [lens, errors],
    [
      [5, 1, 0],
      ['', '', 'cut'],
    ],
  );
});

test('details of requests are seconds, and 0 where there was no answer', () => {
  assert.deepEqual(resultDetails(samples, 1000), {
    start_times: [0, 0.1, 0.2],
    tpots: [0.01, 0, 0],
    e2els: [0.09, 0.02, 0],
    num_chunks: [3, 1, 2],
  });
  assert.deepEqual(timesOf(sample(5, [], 0)), { ttft: 0, e2el: 0, tpot: 0 });
});

test('the file is named as ATOM names it', () => {
  assert.equal(resultFileName(facts), 'vllm-infqps-concurrency16-model-20261122-090507.json');
  assert.equal(resultFileName({ ...facts, requestRate: 4, maxConcurrency: null }), 'vllm-4.0qps-model-20261122-090507.json');
  assert.equal(resultFileName({ ...facts, requestRate: 0.5, maxConcurrency: null }), 'vllm-0.5qps-model-20261122-090507.json');
});
