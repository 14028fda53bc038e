/** The books of requests: what counts when, by way of an engine that does what the test says. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RequestHandle, RequestSink } from '../../../actors/client-types.js';
import type { Failure } from '../../../actors/messages/errors.js';
import type { GenerationParams, PromptInput } from '../../../actors/messages/requests.js';
import { Books } from '../../../daemon/metrics/books.js';
import { meteredEngine } from '../../../daemon/metrics/metered-engine.js';
import { FakeEngineClient, type FakeRequest } from '../../helpers/engine/fake-engine-client.js';
import { deaf, generation } from '../../helpers/engine/generation.js';

const prompt: PromptInput = { kind: 'text', text: 'abcde', addSpecialTokens: true };

interface Rig {
  readonly engine: FakeEngineClient;
  readonly books: Books;
  readonly ends: (Failure | null)[];
  submit(params?: Partial<GenerationParams>, arrivalMs?: number): { readonly handle: RequestHandle; readonly request: FakeRequest };
  /** Number of values that a histogram of the table has, and their sum. */
  seen(name: string): readonly [number, number];
}

function rig(prefixCache = true): Rig {
  const engine = new FakeEngineClient({ auto: false });
  engine.script = () => ['a', 'b', 'c'];
  const books = new Books(4096);
  const metered = meteredEngine(engine, [books], prefixCache);
  const ends: (Failure | null)[] = [];
  const sink: RequestSink = { ...deaf, onEnd: (failure) => ends.push(failure) };
  return {
    engine,
    books,
    ends,
    submit(params = {}, arrivalMs) {
      const handle = metered.submit(prompt, generation(params), arrivalMs === undefined ? sink : { ...sink, arrivalMs });
      return { handle, request: engine.all.at(-1)! }; // just submitted
    },
    seen(name) {
      const { histogram } = books.histograms.find(({ observed }) => observed.name === name) ?? assert.fail(name);
      return [histogram.counts.reduce((a, b) => a + b, 0), histogram.sum];
    },
  };
}

const count = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

test('a prompt that is pooled counts as an answer without tokens; only its last state may come from the prefix cache', () => {
  const { engine, books, submit, seen, ends } = rig();
  for (const pooling of ['last', 'mean'] as const) submit({ pooling, maxTokens: 0 });
  engine.step();
  assert.deepEqual(ends, [null, null]);
  assert.deepEqual(books.endings, { stop: 2, length: 0, abort: 0, error: 0 });
  assert.deepEqual([books.promptTokens, books.queriedTokens, books.generatedTokens], [10, 5, 0]);
  assert.deepEqual([count(books.firstToken.counts), count(books.gaps.counts)], [0, 0]);
  assert.deepEqual(seen('vllm:request_prompt_tokens'), [2, 10]);
  assert.deepEqual(seen('vllm:request_generation_tokens'), [2, 0]);
  assert.equal(seen('vllm:request_prefill_time_seconds')[0], 2);
});

test('a whole answer counts once, its tokens one by one', () => {
  const { engine, books, submit, seen, ends } = rig();
  submit();
  for (let i = 0; i < 3; i++) engine.step();
  assert.deepEqual(ends, [null]);
  assert.deepEqual(books.endings, { stop: 1, length: 0, abort: 0, error: 0 });
  assert.deepEqual([books.promptTokens, books.cachedTokens, books.queriedTokens, books.generatedTokens], [5, 2, 5, 3]);
  assert.deepEqual([count(books.firstToken.counts), count(books.gaps.counts)], [1, 2]);
  assert.deepEqual(seen('vllm:request_prompt_tokens'), [1, 5]);
  assert.deepEqual(seen('vllm:request_prefill_kv_computed_tokens'), [1, 3]);
  assert.deepEqual(seen('vllm:request_generation_tokens'), [1, 3]);
  assert.deepEqual(seen('vllm:request_queue_time_seconds'), [1, 0.001]);
  assert.equal(seen('vllm:request_decode_time_seconds')[0], 1);
});

test('times count from the arrival of the message, which came before its decoding', () => {
  const { engine, books, submit, seen } = rig();
  submit({}, performance.now() - 5000);
  for (let i = 0; i < 3; i++) engine.step();
  assert.ok(books.firstToken.sum >= 5);
  assert.ok(seen('vllm:request_queue_time_seconds')[1] >= 5);
  assert.ok(seen('vllm:e2e_request_latency_seconds')[1] >= 5);
  assert.ok(seen('vllm:request_prefill_time_seconds')[1] < 5);
});

test('a prompt counts once whatever n; its sequences count each, those of best_of too', () => {
  const { engine, books, submit, seen } = rig();
  submit({ n: 2, bestOf: 3, maxTokens: 2 });
  for (let i = 0; i < 3; i++) engine.step();
  assert.equal(books.promptTokens, 5);
  assert.equal(books.generatedTokens, 6);
  assert.deepEqual(books.endings, { stop: 0, length: 3, abort: 0, error: 0 });
  assert.deepEqual(seen('vllm:e2e_request_latency_seconds')[0], 1);
  assert.deepEqual(seen('vllm:request_params_n'), [1, 2]);
  assert.deepEqual(seen('vllm:request_params_max_tokens'), [1, 2]);
  assert.deepEqual(seen('vllm:request_max_num_generation_tokens'), [1, 2]);
  assert.deepEqual(seen('vllm:request_generation_tokens'), [3, 6]);
});

test('a request that is cancelled while it waits is an abort without a prompt', () => {
  const { books, submit, seen } = rig();
  submit().handle.cancel();
  assert.deepEqual(books.endings, { stop: 0, length: 0, abort: 1, error: 0 });
  assert.equal(books.promptTokens, 0);
  assert.deepEqual(seen('vllm:request_prompt_tokens'), [0, 0]);
  assert.equal(seen('vllm:e2e_request_latency_seconds')[0], 1);
});

test('a cancel counts only the sequences that had not ended', () => {
  const { engine, books, submit } = rig();
  engine.script = (_prompt, _params, index) => (index === 0 ? ['a'] : ['a', 'b', 'c']);
  const { handle } = submit({ n: 2, bestOf: 2 });
  engine.step();
  handle.cancel();
  handle.cancel();
  assert.deepEqual(books.endings, { stop: 1, length: 0, abort: 1, error: 0 });
});

test('failures of the engine are errors; what only refuses is none of the ends', () => {
  const cases: readonly (readonly [Failure['kind'], string])[] = [
    ['engine_failure', 'error'],
    ['out_of_memory', 'error'],
    ['shutting_down', 'abort'],
    ['slow_consumer', 'abort'],
    ['invalid_params', ''],
    ['context_length_exceeded', ''],
    ['overloaded', ''],
  ];
  for (const [kind, ending] of cases) {
    const { engine, books, submit } = rig();
    engine.fail(submit().request, { kind });
    assert.deepEqual(
      Object.entries(books.endings).filter(([, n]) => n > 0),
      ending === '' ? [] : [[ending, 1]],
      kind,
    );
    assert.deepEqual([...books.rejections], kind === 'overloaded' ? [['queue_full', 1]] : [], kind);
  }
});

test('what the door refuses for lack of room is a rejection by its reason', () => {
  const { engine, books, submit } = rig();
  for (const kind of ['overloaded', 'model_loading', 'overloaded', 'invalid_params', 'engine_failure'] as const) {
    engine.refuseNext = { kind };
    submit();
  }
  assert.deepEqual(
    [...books.rejections],
    [
      ['queue_full', 2],
      ['model_loading', 1],
      ['engine_failure', 1],
    ],
  );
  assert.equal(count(Object.values(books.endings)), 0);
});

test('a prompt is looked up in the prefix cache where there is one and its logprobs are not asked for', () => {
  for (const [prefixCache, promptLogprobs, queried] of [
    [true, -1, 5],
    [true, 0, 0],
    [false, -1, 0],
  ] as const) {
    const { engine, books, submit } = rig(prefixCache);
    submit({ promptLogprobs });
    engine.step();
    assert.equal(books.queriedTokens, queried);
  }
});
