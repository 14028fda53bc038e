/** Spans of calls, with OpenTelemetry's own SDK and a memory in the collector's place. */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { spansOf } from '../../../daemon/tracing/call-spans.js';
import type { CallWatch, ObservedCall } from '../../../rpc/observe.js';

const memory = new InMemorySpanExporter();
const observe = spansOf(new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(memory)] }), '1.2.3');
beforeEach(() => memory.reset());

const begin = (call: Partial<ObservedCall> = {}): CallWatch => {
  const watch = observe({ operation: 'chat', model: 'demo', params: {}, trace: null, ...call });
  assert.ok(watch);
  return watch;
};
const only = () => {
  const [span, ...others] = memory.getFinishedSpans();
  assert.ok(span);
  assert.equal(others.length, 0);
  return span;
};

const usage = {
  prompt_tokens: 20,
  completion_tokens: 9,
  total_tokens: 29,
  prompt_tokens_details: { cached_tokens: 16 },
  ttft_s: 0.25,
  tpot_s: 0.01,
  latency_s: 0.5,
  queue_s: 0.125,
};

test('a span has the names of the conventions for what was asked, answered and counted', () => {
  const params = {
    model: 'demo',
    messages: [{ role: 'user', content: 'a secret' }],
    temperature: 0.5,
    max_tokens: 9,
    seed: 7,
    n: 2,
    stop: ['a secret'],
    top_k: null,
  };
  const choices = [{ finish_reason: 'stop', message: { content: 'a secret' } }, { finish_reason: 'length' }];
  begin({ params }).done({ id: 'chatcmpl-1', model: 'demo', choices, usage });
  const span = only();
  assert.equal(span.name, 'chat demo');
  assert.equal(span.kind, 1, 'the kind of a server');
  assert.deepEqual(span.attributes, {
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'inferd',
    'gen_ai.request.model': 'demo',
    'gen_ai.request.temperature': 0.5,
    'gen_ai.request.max_tokens': 9,
    'gen_ai.request.seed': 7,
    'gen_ai.request.choice.count': 2,
    'gen_ai.response.id': 'chatcmpl-1',
    'gen_ai.response.model': 'demo',
    'gen_ai.response.finish_reasons': ['stop', 'length'],
    'gen_ai.usage.input_tokens': 20,
    'gen_ai.usage.output_tokens': 9,
    'gen_ai.usage.cache_read.input_tokens': 16,
    'gen_ai.latency.time_in_queue': 0.125,
    'gen_ai.latency.time_to_first_token': 0.25,
    'gen_ai.latency.e2e': 0.5,
  });
  const [event] = span.events;
  assert.equal(event?.name, 'gen_ai.first_token');
  const seconds = ([whole, nanos]: readonly [number, number]): number => whole + nanos / 1e9;
  assert.ok(Math.abs(seconds(event?.time ?? [0, 0]) - seconds(span.startTime) - 0.25) < 1e-5);
  assert.equal(span.status.code, 0);
  assert.doesNotMatch(JSON.stringify([span.attributes, span.events, span.name]), /secret/);
});

test('an answer without tokens has no first one, and one of embeddings no reason', () => {
  begin({ operation: 'embeddings' }).done({ model: 'demo', usage: { prompt_tokens: 3 } });
  const span = only();
  assert.equal(span.name, 'embeddings demo');
  assert.equal(span.events.length, 0);
  assert.equal(span.attributes['gen_ai.usage.input_tokens'], 3);
  assert.ok(!('gen_ai.response.finish_reasons' in span.attributes));
});

test('a failure is an error of its kind, and a caller who leaves is none', () => {
  begin().failed({ kind: 'context_length_exceeded', message: 'The prompt has 9 tokens' });
  const failed = only();
  assert.deepEqual([failed.status.code, failed.attributes['error.type']], [2, 'context_length_exceeded']);
  memory.reset();
  begin().failed({ kind: 'cancelled', data: { usage, last_seq: 3 } });
  const left = only();
  assert.deepEqual([left.status.code, left.attributes['error.type'], left.attributes['gen_ai.usage.output_tokens']], [0, 'cancelled', 9]);
});

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';

test('the span of the caller is the parent, and its state goes on', () => {
  begin({ trace: { parent: `00-${traceId}-${spanId}-01`, state: 'vendor=1' } }).done({});
  const span = only();
  assert.equal(span.spanContext().traceId, traceId);
  assert.equal(span.parentSpanContext?.spanId, spanId);
  assert.equal(span.spanContext().traceState?.get('vendor'), '1');
});

test('a caller that is not sampled gets no span, and a header that is none begins a trace of its own', () => {
  assert.equal(observe({ operation: 'chat', model: 'demo', params: {}, trace: { parent: `00-${traceId}-${spanId}-00` } }), null);
  const wrong = [
    `ff-${traceId}-${spanId}-01`,
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${spanId}-01-x`,
    `00-${traceId.toUpperCase()}-${spanId}-01`,
    'x',
    '',
  ];
  for (const parent of wrong) {
    memory.reset();
    begin({ trace: { parent } }).done({});
    assert.notEqual(only().spanContext().traceId, traceId, parent);
  }
});

test('whatever a client sends as parameters, a span takes numbers only, and a long name is cut', () => {
  const params = { temperature: 'a secret', max_tokens: { a: 1 }, top_p: Number.NaN, seed: [1], n: '5', max_completion_tokens: 4 };
  begin({ params, model: 'm'.repeat(5000) }).done(null);
  const span = only();
  assert.equal(span.attributes['gen_ai.request.max_tokens'], 4);
  assert.deepEqual(
    Object.keys(span.attributes).filter((name) => name.startsWith('gen_ai.request')),
    ['gen_ai.request.model', 'gen_ai.request.max_tokens'],
  );
  assert.equal(span.name.length, 'chat '.length + 256);
});
