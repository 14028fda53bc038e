/**
 * Tiny checkpoints of seven architectures against what transformers computed in float32: logits at every position and 32 greedy
 * tokens, whichever way the prompt reaches the engine. The ways must agree bit for bit, which is the batch invariance that
 * core/backend.h promises.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ROW_FLAG } from '../../actors/messages/step.js';
import type { EngineOptions, NativeEngine } from '../../native/index.js';
import { answer, blockSets, fixture, openEngine, runStep } from '../helpers/native-engine.js';
import { buildPlan, type StepAnswer } from '../helpers/plan.js';
import { readSafetensors } from '../helpers/safetensors.js';

const packs = ['llama2-mha', 'llama3.1-gqa', 'llama3.2-tied', 'mistral-sliding', 'qwen2-bias', 'qwen3-qknorm', 'phi3-fused'];
const maxLogitErrorF32 = 2e-3;
/**
 * Keys and values rounded to 8 (bf16) or 11 (f16) bits of mantissa moved logits of standard deviation 3 to 5 by at most 0.23 and
 * 0.030, and by 0.8 % and 0.11 % in the root mean square; the bounds are about twice that.
 */
const bounds16 = { bf16: { max: 0.45, relativeRms: 0.016 }, f16: { max: 0.06, relativeRms: 0.002 } } as const;

interface Golden {
  readonly ids: number[];
  readonly logits: Float32Array;
  readonly greedyIds: number[];
  readonly greedyLogprobs: number[];
}

function readGolden(pack: string): Golden {
  const tensors = readSafetensors(fixture('golden', pack, 'golden.safetensors'));
  const get = (name: string): Float32Array | Int32Array => tensors.get(name)?.data ?? new Float32Array();
  return {
    ids: [...get('input_ids')],
    logits: get('logits') as Float32Array,
    greedyIds: [...get('greedy_ids')],
    greedyLogprobs: [...get('greedy_logprobs')],
  };
}

function open(pack: string, options: Partial<EngineOptions> = {}): NativeEngine {
  const blockSize = options.blockSize ?? 16;
  return openEngine(join(fixture('golden'), pack), options, Math.ceil(512 / blockSize));
}

interface Run {
  /** Raw logits of the prompt positions that were computed, by position. */
  readonly logits: Map<number, Float32Array>;
  readonly tokens: number[];
  readonly logprobs: number[];
}

interface Way {
  readonly slot?: number;
  readonly firstBlock?: number;
  readonly chunk?: number;
  /** Blocks of another slot that already hold the first tokens. */
  readonly cachedBlocks?: number;
  /** Submit step N + 1 before the answer of step N is read. */
  readonly runAhead?: boolean;
}

function collect(run: Run, a: StepAnswer): void {
  assert.equal(a.errorCode, 0);
  for (const row of a.logits) run.logits.set(row.position, row.values);
  for (const s of a.samples) {
    run.tokens.push(s.token);
    run.logprobs.push(s.logprob);
  }
}

/** Prefills the prompt in one of the ways, then decodes greedily. */
function generate(engine: NativeEngine, ids: readonly number[], count: number, blockSize: number, way: Way = {}): Run {
  const { slot = 0, firstBlock = 0, chunk = ids.length, cachedBlocks = 0, runAhead = false } = way;
  const run: Run = { logits: new Map(), tokens: [], logprobs: [] };
  const sets = [
    ...blockSets(slot, 0, cachedBlocks),
    ...blockSets(slot, firstBlock, Math.ceil((ids.length + count) / blockSize) - cachedBlocks, cachedBlocks),
  ];
  runStep(engine, { newSlots: [{ slot, tokens: ids, sampling: { topLogprobs: 0 } }], blockSets: sets });
  let at = cachedBlocks * blockSize;
  for (; ids.length - at > chunk; at += chunk) {
    collect(run, runStep(engine, { rows: [{ slot, start: at, count: chunk, flags: ROW_FLAG.rawLogits }] }));
  }
  const samples = [{ row: 0, slot }];
  engine.submit(buildPlan({ rows: [{ slot, start: at, count: ids.length - at, flags: ROW_FLAG.rawLogits }], samples }));
  for (let i = 1; i < count; i++) {
    if (!runAhead) collect(run, answer(engine));
    engine.submit(buildPlan({ step: i, rows: [{ slot, start: ids.length + i - 1, count: 1 }], samples }));
    if (runAhead) collect(run, answer(engine));
  }
  collect(run, answer(engine));
  return run;
}

/** The largest error, and the root mean square of all errors as a share of that of the golden logits. */
function errors(run: Run, golden: Golden): { max: number; relativeRms: number } {
  let max = 0;
  let squares = 0;
  let total = 0;
  for (const [position, values] of run.logits) {
    const base = position * values.length;
    for (const [i, value] of values.entries()) {
      const wanted = golden.logits[base + i] ?? Number.NaN;
      max = Math.max(max, Math.abs(value - wanted));
      squares += (value - wanted) ** 2;
      total += wanted ** 2;
    }
  }
  return { max, relativeRms: Math.sqrt(squares / total) };
}

for (const pack of packs) {
  describe(pack, () => {
    const golden = readGolden(pack);
    const n = golden.ids.length;

    test('float32 KV gives the golden logits and greedy tokens', (t) => {
      const engine = open(pack);
      const run = generate(engine, golden.ids, 32, 16);
      assert.equal(run.logits.size, n);
      const { max } = errors(run, golden);
      t.diagnostic(`max |logit - golden| = ${max.toExponential(2)}`);
      assert.ok(max <= maxLogitErrorF32, `max |logit - golden| = ${max}`);
      assert.deepEqual(run.tokens, golden.greedyIds);
      for (const [i, logprob] of run.logprobs.entries()) assert.ok(Math.abs(logprob - (golden.greedyLogprobs[i] ?? Number.NaN)) < 1e-3);
      engine.close();
    });

    for (const kvDtype of ['bf16', 'f16'] as const) {
      test(`${kvDtype} KV stays within its bound`, (t) => {
        const engine = open(pack, { kvDtype });
        const run = generate(engine, golden.ids, 32, 16);
        const { max, relativeRms } = errors(run, golden);
        const same = run.tokens.filter((token, i) => token === golden.greedyIds[i]).length;
        t.diagnostic(
          `max |logit - golden| = ${max.toExponential(2)}, relative rms ${relativeRms.toExponential(2)}, ${same} of 32 greedy tokens`,
        );
        assert.ok(max <= bounds16[kvDtype].max && relativeRms <= bounds16[kvDtype].relativeRms, `max ${max}, relative rms ${relativeRms}`);
        engine.close();
      });
    }

    test('chunks of 7, cached blocks, blocks of 1 token and run-ahead change no bit', () => {
      const engine = open(pack);
      const whole = generate(engine, golden.ids, 32, 16);
      const ways: Record<string, Way> = {
        'chunks of 7': { slot: 1, firstBlock: 16, chunk: 7 },
        'half from the blocks of slot 0': { slot: 2, firstBlock: 16, cachedBlocks: Math.floor(n / 2 / 16) },
        'two steps in flight': { slot: 3, firstBlock: 16, runAhead: true },
      };
      for (const [name, way] of Object.entries(ways)) same(generate(engine, golden.ids, 32, 16, way), whole, name);
      engine.close();
      const ones = open(pack, { blockSize: 1 });
      same(generate(ones, golden.ids, 32, 1), whole, 'block size 1');
      same(
        generate(ones, golden.ids, 32, 1, { slot: 1, firstBlock: 200, cachedBlocks: Math.floor(n / 2), chunk: 7, runAhead: true }),
        whole,
        'all',
      );
      ones.close();
    });
  });
}

function same(run: Run, whole: Run, name: string): void {
  assert.deepEqual(run.tokens, whole.tokens, name);
  assert.deepEqual(run.logprobs, whole.logprobs, name);
  for (const [position, values] of run.logits) assert.deepEqual(values, whole.logits.get(position), `${name}, position ${position}`);
}
