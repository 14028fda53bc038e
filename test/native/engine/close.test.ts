/** How an engine ends while one of its steps runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NativeEngine } from '../../../native/index.js';
import { blockSets, nativeError, openEngine } from '../../helpers/native/native-engine.js';
import { buildPlan } from '../../helpers/native/plan.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';

/** 7 * 10^10 multiplications in one step, more than a few milliseconds on any machine of today. */
const tokens = Array.from({ length: 2048 }, (_, i) => i % 32);
const shape = { ...tinyConfig, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 2, max_position_embeddings: 4096 };
const blocks = tokens.length / 16;
const longStep = buildPlan({
  newSlots: [{ slot: 0, tokens }],
  blockSets: blockSets(0, 0, blocks),
  rows: [{ slot: 0, start: 0, count: tokens.length }],
  samples: [{ row: 0, slot: 0 }],
});

function withLongStep(body: (engine: NativeEngine) => void): void {
  withModelFolder({ ...shape, tie_word_embeddings: true }, (folder) => {
    const sizes = { maxModelLen: 2 * tokens.length, maxBatchTokens: tokens.length };
    const engine = openEngine(folder, { loadDummy: true, weightDtype: 'bf16', ...sizes }, blocks);
    engine.submit(longStep);
    body(engine);
  });
}

test('an engine that is closed waits for its step', () => {
  withLongStep((engine) => assert.equal(engine.close(), true));
});

test('an engine whose step does not end within the limit is given up, closed for its owner, and others work', () => {
  withLongStep((engine) => {
    assert.equal(engine.close(0), false);
    assert.throws(() => engine.pending(), nativeError('closed', /closed/));
    assert.equal(engine.close(0), true, 'there is nothing left to close');
    withLongStep((other) => {
      while (other.wait(new Uint8Array(1 << 20), 1000) === 0);
      assert.equal(other.close(0), true);
    });
  });
});
