/** A request for a pooled state in the tokenizer: encoded and admitted as any other, and over with its state. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Deltas } from '../../../actors/messages/requests.js';
import { demoModel, Harness, id } from './harness.js';

const state = new Uint8Array(Float32Array.of(1, -2.5).buffer);

test('the state is the only piece of its answer and ends it', async () => {
  const harness = await Harness.start(demoModel);
  const admit = await harness.admit(1, { pooling: 'mean', maxTokens: 0 });
  assert.deepEqual([admit.pooling, admit.maxTokens, admit.bestOf], ['mean', 0, 1]);
  const started = [{ id: id(1), queueMs: 2, cachedTokens: 0 }];
  harness.step([], { started, pooled: [{ id: id(1), state }] });
  const message = harness.front.find((m): m is Deltas => m.k === 'deltas');
  assert.deepEqual(message?.deltas, [{ id: 1, index: 0, text: '', tokens: [], finish: 'stop', pooled: state }]);
  assert.deepEqual(message?.started, started);
  assert.equal(harness.handlers.size(), 0);
  harness.step([], { pooled: [{ id: id(1), state }] });
  assert.equal(harness.deltas(1).length, 1, 'it ends once');
  harness.handlers.close();
});

test('states and tokens of one step come in one message; what was aborted is not told', async () => {
  const harness = await Harness.start(demoModel);
  await harness.admit(1, { pooling: 'last', maxTokens: 0 });
  await harness.admit(2);
  await harness.admit(3, { pooling: 'last', maxTokens: 0 });
  harness.handlers.fromFront({ k: 'abort', ids: [id(3)] });
  harness.step([[2, 300, 3]], { pooled: [1, 3].map((n) => ({ id: id(n), state })) });
  assert.equal(harness.front.filter((m) => m.k === 'deltas').length, 1);
  assert.deepEqual([harness.deltas(1).length, harness.deltas(2).length, harness.deltas(3).length], [1, 1, 0]);
  harness.handlers.close();
});

test('a restarted engine is asked again, and too long an input is refused with its length', async () => {
  const harness = await Harness.start(demoModel, { maxInputLength: 6 });
  await harness.admit(1, { pooling: 'mean', maxTokens: 0 });
  harness.restartEngine();
  const admits = harness.scheduler.filter((m) => m.k === 'admit');
  assert.deepEqual(
    admits.map((m) => [m.id, m.pooling]),
    [
      [1, 'mean'],
      [1, 'mean'],
    ],
  );
  harness.submit(2, { kind: 'ids', ids: [1, 2, 3, 4, 5, 6, 7] }, { pooling: 'mean', maxTokens: 0 });
  await harness.until(() => harness.failure(2) !== undefined);
  const failure = harness.failure(2);
  assert.deepEqual([failure?.kind, failure?.data], ['context_length_exceeded', { prompt_tokens: 7, max_tokens: 0, limit: 6 }]);
  harness.handlers.close();
});
