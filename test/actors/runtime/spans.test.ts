import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { NO_STEP, SPAN, SPAN_ARGS, spanFacts } from '../../../actors/messages/profile.js';
import { monotonicClock } from '../../../actors/runtime/clock.js';
import { buffersOf, SpanRecorder } from '../../../actors/runtime/spans.js';

test('every kind of span has a name and names for its numbers', () => {
  const kinds = Object.values(SPAN);
  assert.deepEqual(
    kinds,
    kinds.map((_, i) => i),
  );
  assert.equal(spanFacts.length, kinds.length);
  for (const { name, args } of spanFacts) assert.ok(name !== '' && args.length <= SPAN_ARGS, name);
});

test('nothing is written while no recording runs, nor a span that began before it', () => {
  const spans = new SpanRecorder();
  const early = spans.begin();
  assert.equal(spans.on, false);
  spans.end(SPAN.plan, early, 1);
  spans.count(SPAN.kv, 5);
  spans.start(10);
  assert.equal(spans.on, true);
  spans.end(SPAN.plan, early, 1);
  assert.equal(spans.stop().size, 0);
  assert.throws(() => spans.stop(), /no recording/);
});

test('a recording holds what happened, in order of time, with its numbers', () => {
  const spans = new SpanRecorder();
  spans.start(10);
  for (let step = 0; step < 3; step++) spans.end(SPAN.plan, spans.begin(), step, 10 + step, 20, step % 2);
  spans.end(SPAN.drain, spans.begin(), NO_STEP, 7);
  const r = spans.stop();
  assert.deepEqual([r.size, r.dropped], [4, 0]);
  assert.deepEqual([...r.kind.subarray(0, 4)], [SPAN.plan, SPAN.plan, SPAN.plan, SPAN.drain]);
  assert.deepEqual([...r.step.subarray(0, 4)], [0, 1, 2, NO_STEP]);
  assert.deepEqual([...r.args.subarray(0, 12)], [10, 20, 0, 11, 20, 1, 12, 20, 0, 7, 0, 0]);
  for (let i = 1; i < r.size; i++) assert.ok(r.startUs[i]! >= r.startUs[i - 1]! + r.durationUs[i - 1]!, 'spans follow each other');
  assert.equal(buffersOf(r).length, 5);
});

test('events beyond the room are counted and change nothing', () => {
  const spans = new SpanRecorder();
  spans.start(3);
  for (let step = 0; step < 8; step++) spans.end(SPAN.wait, spans.begin(), step);
  const r = spans.stop();
  assert.deepEqual([r.size, r.dropped], [3, 5]);
  assert.deepEqual([...r.step], [0, 1, 2]);
});

test('a counter is written when it changes, again in each recording', () => {
  const spans = new SpanRecorder();
  for (let round = 0; round < 2; round++) {
    spans.start(10);
    for (const used of [0, 0, 4, 4, 0]) spans.count(SPAN.kv, used);
    spans.count(SPAN.requests, 0, 1);
    const r = spans.stop();
    assert.equal(r.size, 4);
    assert.deepEqual(
      [0, 1, 2].map((i) => r.args[i * SPAN_ARGS]),
      [0, 4, 0],
    );
  }
});

test('all threads read one clock', async () => {
  const now = monotonicClock();
  const system = Number(process.hrtime.bigint()) / 1000;
  assert.ok(Math.abs(now() - system) < 5000, 'it is the system clock');
  const url = new URL('../../../actors/runtime/clock.js', import.meta.url).href;
  const source = `import(${JSON.stringify(url)}).then(({ monotonicClock }) => require('node:worker_threads').parentPort.postMessage(monotonicClock()()));`;
  const before = now();
  const worker = new Worker(source, { eval: true });
  const there = await new Promise<number>((resolve) => worker.once('message', resolve));
  assert.ok(there >= before - 50 && there <= now() + 50, `${before} ${there} ${now()}`);
  await worker.terminate();
});
