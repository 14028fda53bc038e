/**
 * The op table on CUDA in both 16-bit types: ops on activations, cache writes and attention against float64 references; sampling,
 * scoring and the plan against the CPU backend, which has tests of its own against float64.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, ints, PagedCache, type PagedShape, runOp, type Setup, type StepRow } from '../helpers/op-table.js';
import {
  attendOne,
  linear,
  normalizedError,
  randomFloats,
  randomInt,
  randomSource,
  rmsNorm,
  rotateHead,
  roundAll,
  siluMul,
} from '../helpers/reference-ops.js';
import { plainParams } from '../helpers/reference-sampler.js';
import { type SampleCase, sampleAll } from '../helpers/sample-op.js';

type Type = 'f16' | 'bf16';
/** Squared relative error of a result stored in 16 bits. */
const STORED = { f16: 2 ** -22, bf16: 2 ** -16 } as const;
/** Probabilities are rounded to 16 bits too before they meet the values. */
const ATTENDED = { f16: 4 * STORED.f16, bf16: 4 * STORED.bf16 } as const;
/** Angles are float32 on CUDA, exact to 1e-4 radians at the positions tested. */
const ROTATED = { f16: 2 * STORED.f16 + 1e-8, bf16: 2 * STORED.bf16 } as const;

function close(got: Float32Array, want: Float64Array, bound: number, what: string): void {
  const error = normalizedError(got, want);
  assert.ok(error <= bound, `${what}: normalized error ${error} is above ${bound}`);
}

const rowWidth = (s: PagedShape): number => (s.heads + 2 * s.kvHeads) * s.headDim;
const tokensOf = (rows: readonly StepRow[]): number => rows.reduce((sum, r) => sum + r.count, 0);

function attendReference(cache: PagedCache, rows: readonly StepRow[], qkv: Float32Array, window: number): Float64Array {
  const { heads, kvHeads, headDim } = cache.shape;
  const out = new Float64Array(tokensOf(rows) * heads * headDim);
  const options = { scale: Math.fround(1 / Math.sqrt(headDim)), window };
  let token = 0;
  for (const row of rows) {
    for (let i = 0; i < row.count; i++, token++) {
      for (let h = 0; h < heads; h++) {
        const kvHead = Math.floor(h / (heads / kvHeads));
        const start = token * rowWidth(cache.shape) + h * headDim;
        const read = {
          key: (j: number, d: number) => cache.k[cache.at(row.slot, kvHead, j, d)] ?? Number.NaN,
          value: (j: number, d: number) => cache.v[cache.at(row.slot, kvHead, j, d)] ?? Number.NaN,
        };
        out.set(attendOne(qkv.subarray(start, start + headDim), row.start + i, read, options), (token * heads + h) * headDim);
      }
    }
  }
  return out;
}

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const rounded = (random: () => number, count: number, spread = 1): Float32Array => roundAll(type, randomFloats(random, count, spread));

    it('embed and gather_rows copy rows exactly', () => {
      const random = randomSource(1);
      for (const cols of [8, 64, 4096]) {
        const table = rounded(random, 9 * cols, 30);
        const ids = Int32Array.from([8, 0, 3, 3, 7]);
        const want = Float32Array.from([...ids].flatMap((id) => [...table.subarray(id * cols, (id + 1) * cols)]));
        assert.deepEqual(floats(runOp(setup, 'embed', { rows: 5, vocab: 9, cols, dtype: type }, { table, ids }), 'out'), want);
        assert.deepEqual(floats(runOp(setup, 'gather_rows', { rows: 9, cols, count: 5 }, { x: table, ids }), 'out'), want);
      }
    });

    it('norms, sum and gated activation match for ragged sizes', () => {
      const random = randomSource(2);
      for (const [rows, cols] of [
        [1, 8],
        [3, 64],
        [300, 128],
        [17, 4096],
        [5, 14336],
      ] as const) {
        const x = rounded(random, rows * cols, 3);
        const other = rounded(random, rows * cols, 3);
        const weight = randomFloats(random, cols, 2);
        const attrs = { rows, cols, eps: 1e-5 };
        close(floats(runOp(setup, 'rms_norm', attrs, { x, weight }), 'out'), rmsNorm(x, weight, cols, 1e-5), STORED[type], 'rms_norm');
        const sum = roundAll(
          type,
          Float32Array.from(x, (value, i) => value + (other[i] ?? 0)),
        );
        const both = runOp(setup, 'add_rms_norm', attrs, { inout: x, x: other, weight });
        close(floats(both, 'inout'), Float64Array.from(sum), STORED[type], 'add_rms_norm sum');
        close(floats(both, 'out'), rmsNorm(sum, weight, cols, 1e-5), 2 * STORED[type], 'add_rms_norm');
        assert.deepEqual(floats(runOp(setup, 'add', { rows, cols }, { inout: x, x: other }), 'inout'), sum);
        const gateUp = rounded(random, rows * 2 * cols, 4);
        close(
          floats(runOp(setup, 'silu_mul', { rows, cols }, { gate_up: gateUp }), 'out'),
          siluMul(gateUp, cols),
          STORED[type],
          'silu_mul',
        );
      }
    });

    it('linear matches for few and many rows, with and without bias', () => {
      const random = randomSource(3);
      for (const rows of [1, 2, 7, 16, 17, 33, 130]) {
        for (const [outs, cols] of [
          [64, 64],
          [320, 176],
          [200, 1024],
        ] as const) {
          const x = rounded(random, rows * cols);
          const weight = rounded(random, outs * cols, 0.2);
          for (const bias of [null, rounded(random, outs)]) {
            const inputs = bias === null ? { x, weight } : { x, weight, bias };
            const got = floats(runOp(setup, 'linear', { rows, cols, outs, dtype: type, parts: 3 }, inputs), 'out');
            close(got, linear(x, weight, bias, cols), STORED[type], `linear ${rows}x${outs}x${cols}`);
          }
        }
      }
    });

    it('attention matches for mixed prefill and decode rows over head sizes, ratios, block sizes and windows', () => {
      const random = randomSource(11);
      const headDims = [64, 96, 128, 256];
      for (let round = 0; round < 16; round++) {
        const kvHeads = randomInt(random, 1, 2);
        const shape: PagedShape = {
          ...{ heads: kvHeads * ([1, 2, 3, 4, 8][round % 5] ?? 1), kvHeads, headDim: headDims[round % 4] ?? 64 },
          ...{ blockSize: [1, 16, 32][round % 3] ?? 16, kvDtype: type, lengths: [400, 33, 70] },
        };
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start: randomInt(random, 0, 100), count: randomInt(random, 1, 200) },
          { slot: 2, start: randomInt(random, 0, 60), count: 1 },
          { slot: 1, start: 0, count: 3 },
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 1.5);
        for (const window of [0, randomInt(random, 1, 90)]) {
          const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(shape.headDim), window };
          const out = floats(runOp(setup, 'attention', attrs, cache.inputs(rows, qkv)), 'out');
          close(out, attendReference(cache, rows, qkv, window), ATTENDED[type], `${JSON.stringify(shape)} window ${window}`);
        }
      }
    });

    it('rotation and cache writes match, with and without norms of the heads', () => {
      const random = randomSource(12);
      for (const headDim of [64, 96, 128, 256]) {
        const shape: PagedShape = { heads: 4, kvHeads: 2, headDim, blockSize: 16, kvDtype: type, lengths: [90, 40] };
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 1, start: 33, count: 1 },
          { slot: 0, start: 20, count: 40 },
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 2);
        const invFreq = Float32Array.from({ length: headDim / 2 }, (_, i) => 10000 ** (-i / (headDim / 2)));
        for (const norm of [null, randomFloats(random, headDim, 2)]) {
          const attrs = { ...cache.attrs(rows), rotary_dim: headDim, factor: 1, norm_eps: 1e-6 };
          const inputs = { ...cache.inputs(rows, qkv), inv_freq: invFreq, ...(norm === null ? {} : { q_norm: norm, k_norm: norm }) };
          const result = runOp(setup, 'rope_and_cache', attrs, inputs);
          const spec = { invFreq, factor: 1, rotaryDim: headDim, norm, normEps: 1e-6 };
          const prepared = (at: number, position: number): Float64Array => rotateHead(qkv.subarray(at, at + headDim), position, spec);
          let token = 0;
          for (const row of rows) {
            for (let i = 0; i < row.count; i++, token++) {
              const base = token * rowWidth(shape);
              for (let h = 0; h < shape.heads; h++) {
                const at = base + h * headDim;
                close(floats(result, 'qkv').subarray(at, at + headDim), prepared(at, row.start + i), ROTATED[type], `q of token ${token}`);
              }
              for (let h = 0; h < shape.kvHeads; h++) {
                const k = base + (shape.heads + h) * headDim;
                const to = cache.at(row.slot, h, row.start + i, 0);
                close(floats(result, 'k').subarray(to, to + headDim), prepared(k, row.start + i), ROTATED[type], `k of token ${token}`);
                const v = k + shape.kvHeads * headDim;
                assert.deepEqual(floats(result, 'v').subarray(to, to + headDim), qkv.subarray(v, v + headDim));
              }
            }
          }
        }
      }
    });

    it('block copies are done in order', () => {
      const random = randomSource(13);
      const attrs = { num_blocks: 6, kv_heads: 2, block_size: 16, head_dim: 64, kv_dtype: type, count: 3 };
      const width = 2 * 16 * 64;
      const inputs = { k: rounded(random, 6 * width), v: rounded(random, 6 * width), pairs: Int32Array.from([0, 3, 3, 5, 1, 0]) };
      const got = runOp(setup, 'copy_blocks', attrs, inputs);
      const want = runOp({ isa: 'reference' }, 'copy_blocks', attrs, inputs);
      for (const name of ['k', 'v']) assert.deepEqual(floats(got, name), floats(want, name));
    });

    it('swapped blocks come back whole, whatever went first', () => {
      const random = randomSource(14);
      const numBlocks = 40;
      for (const [kv_heads, block_size, head_dim] of [
        [1, 1, 64],
        [8, 16, 128],
      ] as const) {
        const count = 17;
        const width = kv_heads * block_size * head_dim;
        const outs = Int32Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? (i * 7) % numBlocks : (i * 5) % count));
        const hosts = outs.filter((_, i) => i % 2 === 1);
        const ins = Int32Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? (hosts[i / 2] ?? 0) : (i * 3) % numBlocks));
        const inputs = { k: rounded(random, numBlocks * width), v: rounded(random, numBlocks * width), outs, ins };
        for (const urgent of [0, 5, count]) {
          const attrs = { num_blocks: numBlocks, kv_heads, block_size, head_dim, kv_dtype: type, count, swap_blocks: count, urgent };
          const got = runOp(setup, 'swap_blocks', attrs, inputs);
          const want = runOp({ isa: 'reference' }, 'swap_blocks', attrs, inputs);
          for (const name of ['k', 'v']) assert.deepEqual(floats(got, name), floats(want, name));
        }
      }
    });
  });
}

describe('CUDA, logits', () => {
  const setup: Setup = { isa: 'auto', backend: 'cuda' };
  const cpu: Setup = { isa: 'reference' };

  it('greedy, penalized and drawn tokens are those of the CPU backend', () => {
    const random = randomSource(21);
    for (const vocab of [100, 4096, 50_000]) {
      const cases: SampleCase[] = Array.from({ length: 24 }, (_, i) => ({
        logits: randomFloats(random, vocab, 6),
        params: {
          ...plainParams,
          temperature: i % 3 === 0 ? 0 : 0.7 + 0.1 * i,
          ...(i % 4 === 1 ? { topK: 5 } : {}),
          ...(i % 4 === 2 ? { topP: 0.8 } : {}),
          ...(i % 5 === 1 ? { minP: 0.05 } : {}),
          ...(i % 5 === 2 ? { repetition: 1.3, frequency: 0.2, presence: 0.1 } : {}),
          prompt: [1, 2, 3, 4],
          output: [5, 6, 6, 7],
        },
        seed: [i, 7],
        topLogprobs: i % 2 === 0 ? 5 : -1,
      }));
      const got = sampleAll(setup, cases);
      const want = sampleAll(cpu, cases);
      const same = got.filter((s, i) => s.token === want[i]?.token).length;
      // A draw may land within rounding of the boundary between two tokens.
      assert.ok(same >= cases.length - 1, `${same} of ${cases.length} tokens agree at a vocabulary of ${vocab}`);
    }
  });

  it('scores are those of the CPU backend', () => {
    const random = randomSource(22);
    for (const vocab of [100, 4096, 130_000]) {
      const inputs = { logits: randomFloats(random, 3 * vocab, 6), targets: Int32Array.from([0, vocab - 1, 17]) };
      const attrs = { rows: 3, vocab, top: 5 };
      const [got, want] = [runOp(setup, 'score', attrs, inputs), runOp(cpu, 'score', attrs, inputs)];
      assert.deepEqual(ints(got, 'ranks'), ints(want, 'ranks'));
      assert.deepEqual(ints(got, 'top_ids').subarray(0, 5), ints(want, 'top_ids').subarray(0, 5));
      close(floats(got, 'logprobs'), Float64Array.from(floats(want, 'logprobs')), 1e-10, 'logprobs');
    }
  });
});
