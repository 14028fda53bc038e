/**
 * Pooled hidden states of three golden packs against what transformers computed in float32, whichever way the prompt reaches the engine.
 * The ways must agree bit for bit, as those of logits do.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ROW_FLAG } from '../../actors/messages/step.js';
import type { Pooling } from '../../config/models/pooling.js';
import type { NativeEngine } from '../../native/index.js';
import { embeddingOf } from '../../rpc/embeddings/vector.js';
import { openPack } from '../helpers/native/golden.js';
import { blockSets, fixture, runStep } from '../helpers/native/native-engine.js';
import { readSafetensors } from '../helpers/native/safetensors.js';

const golden = readSafetensors(fixture('golden', 'embeddings', 'golden.safetensors'));
const maxError = 1e-5;

interface Way {
  readonly slot?: number;
  readonly firstBlock?: number;
  readonly chunk?: number;
  /** Tokens whose KV is in blocks from 0 on already. */
  readonly cached?: number;
  /** Further flags of every row. */
  readonly flags?: number;
  /** Another prompt, of another slot, that shares every step. */
  readonly beside?: readonly number[];
}

/** Puts a prompt through the engine, in one step or several; returns its pooled state. The slot is freed. */
function pooled(engine: NativeEngine, ids: readonly number[], pooling: Pooling, way: Way = {}): Float32Array {
  const { slot = 0, firstBlock = 0, chunk = ids.length, cached = 0, flags = 0, beside } = way;
  const other = slot + 1;
  const sets = [
    ...blockSets(slot, 0, cached / 16),
    ...blockSets(slot, firstBlock, Math.ceil(ids.length / 16) - cached / 16, cached / 16),
    ...(beside === undefined ? [] : blockSets(other, firstBlock + 10, Math.ceil(beside.length / 16))),
  ];
  const newSlots = [{ slot, tokens: ids }, ...(beside === undefined ? [] : [{ slot: other, tokens: beside }])];
  runStep(engine, { newSlots, blockSets: sets });
  let state: Float32Array | null = null;
  for (let start = cached; start < ids.length; start += chunk) {
    const count = Math.min(chunk, ids.length - start);
    const ends = start + count === ids.length;
    const own = flags | (pooling === 'mean' ? ROW_FLAG.poolSum : 0) | (ends ? ROW_FLAG.pool : 0);
    const rows = [{ slot, start, count, flags: own }];
    const company = beside === undefined ? [] : [{ slot: other, start: 0, count: beside.length, flags: ROW_FLAG.poolSum | ROW_FLAG.pool }];
    const answer = runStep(engine, { rows: [...company, ...rows] });
    assert.equal(answer.errorCode, 0);
    assert.deepEqual(
      answer.pooled.map((p) => p.slot),
      [...company.map((row) => row.slot), ...(ends ? [slot] : [])],
    );
    state = answer.pooled.find((p) => p.slot === slot)?.values ?? null;
  }
  runStep(engine, { freed: newSlots.map((n) => n.slot) });
  assert.ok(state !== null);
  return state;
}

for (const pack of ['llama3.1-gqa', 'qwen2-bias', 'qwen3-qknorm']) {
  describe(pack, () => {
    const ids = [...(golden.get(`${pack}.input_ids`)?.data ?? [])];
    const half = 16 * Math.floor(ids.length / 32);

    for (const pooling of ['last', 'mean'] as const) {
      test(`${pooling}: the golden embedding, with the same bits in every way`, (t) => {
        const wanted = golden.get(`${pack}.${pooling}`)?.data ?? new Float32Array();
        const engine = openPack(pack);
        const whole = pooled(engine, ids, pooling);
        assert.equal(whole.length, wanted.length);
        const embedding = embeddingOf(whole, whole.length);
        const error = Math.max(...embedding.map((x, i) => Math.abs(x - (wanted[i] ?? Number.NaN))));
        t.diagnostic(`max |embedding - golden| = ${error.toExponential(2)}`);
        assert.ok(error <= maxError, `max |embedding - golden| = ${error}`);
        const ways: Record<string, Way> = {
          'the same slot again': {},
          'chunks of 7': { slot: 1, firstBlock: 16, chunk: 7 },
          'single tokens': { slot: 1, firstBlock: 16, chunk: 1 },
          'beside another prompt': { slot: 2, firstBlock: 16, beside: ids.slice(0, 33) },
          'in chunks beside another prompt': { slot: 2, firstBlock: 16, chunk: 13, beside: ids.slice(0, 5) },
          'with the logits of all positions': { slot: 3, firstBlock: 16, chunk: 40, flags: ROW_FLAG.rawLogits },
        };
        for (const [name, way] of Object.entries(ways)) assert.deepEqual(pooled(engine, ids, pooling, way), whole, name);
        if (pooling === 'last') {
          pooled(engine, ids, 'last');
          assert.deepEqual(pooled(engine, ids, 'last', { slot: 3, firstBlock: 16, cached: half }), whole, 'half from the blocks of slot 0');
        }
        engine.close();
      });
    }
  });
}

test('a sum begins anew when its prompt does', () => {
  const pack = 'qwen2-bias';
  const ids = [...(golden.get(`${pack}.input_ids`)?.data ?? [])];
  const engine = openPack(pack);
  const whole = pooled(engine, ids, 'mean');
  const all = { slot: 0, start: 0, count: ids.length };
  runStep(engine, { newSlots: [{ slot: 0, tokens: ids }], blockSets: blockSets(0, 0, Math.ceil(ids.length / 16)) });
  runStep(engine, { rows: [{ ...all, count: 20, flags: ROW_FLAG.poolSum }] });
  assert.deepEqual(runStep(engine, { rows: [{ ...all, flags: ROW_FLAG.poolSum | ROW_FLAG.pool }] }).pooled[0]?.values, whole);
  engine.close();
});
