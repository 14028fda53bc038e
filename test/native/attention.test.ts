/** Rotation, cache writes and paged attention on every kernel set against float64, and their invariance to batching and chunking. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, isas, PagedCache, type PagedShape, runOp, type StepRow } from '../helpers/native/op-table.js';
import { attend, attendReference, rowWidth, tokensOf } from '../helpers/native/paged-attention.js';
import {
  floatTypes,
  normalizedError,
  randomFloats,
  randomInt,
  randomSource,
  rotateHead,
  roundTo,
} from '../helpers/native/reference-ops.js';

const F32_BOUND = 1e-11;
const STORED_BOUND = { f32: F32_BOUND, f16: 2 ** -22, bf16: 2 ** -16 } as const;

for (const isa of isas) {
  describe(`kernels ${isa}`, () => {
    it('attention matches for mixed prefill and decode rows over head sizes, ratios, block sizes, types and windows', () => {
      const random = randomSource(11);
      const headDims = [64, 80, 96, 128, 256, 8, 72];
      for (let round = 0; round < 14; round++) {
        const kvHeads = randomInt(random, 1, 2);
        const shape: PagedShape = {
          ...{ heads: kvHeads * [1, 2, 3, 4, 8][round % 5]!, kvHeads, headDim: headDims[round % 7]! },
          ...{ blockSize: [1, 16, 32][round % 3]!, kvDtype: floatTypes[randomInt(random, 0, 2)]!, lengths: [150, 33, 70] },
        };
        const cache = new PagedCache(shape, random);
        const start = randomInt(random, 0, 100);
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start, count: randomInt(random, 1, 50) },
          { slot: 2, start: randomInt(random, 0, 60), count: 1 },
          { slot: 1, start: 0, count: 3 },
        ];
        const qkv = randomFloats(random, tokensOf(rows) * rowWidth(shape), 1.5);
        for (const window of [0, randomInt(random, 1, 90)]) {
          const out = attend(cache, rows, qkv, window, { isa });
          const error = normalizedError(out, attendReference(cache, rows, qkv, window));
          assert.ok(error <= F32_BOUND, `${JSON.stringify(shape)} window ${window}: ${error}`);
          const soft = normalizedError(attend(cache, rows, qkv, window, { isa }, 2.5), attendReference(cache, rows, qkv, window, 2.5));
          assert.ok(soft <= F32_BOUND, `${JSON.stringify(shape)} window ${window}, scores capped: ${soft}`);
          // From sinks that hardly count to one that takes nearly all.
          const sinks = Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6);
          const sunk = attend(cache, rows, qkv, window, { isa, threads: 2 }, 0, sinks);
          const off = normalizedError(sunk, attendReference(cache, rows, qkv, window, 0, sinks));
          assert.ok(off <= F32_BOUND, `${JSON.stringify(shape)} window ${window}, with sinks: ${off}`);
        }
      }
    });

    it('rotation with attention gives the bits of rotation and then attention', () => {
      const random = randomSource(17);
      const shape: PagedShape = { heads: 4, kvHeads: 2, headDim: 64, blockSize: 16, kvDtype: 'bf16', lengths: [90, 40, 7] };
      for (const prompt of [0, 30]) {
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 1, start: 39, count: 1 },
          { slot: 2, start: 6, count: 1 },
          { slot: 0, start: 50, count: 1 + prompt },
        ];
        const qkv = randomFloats(random, tokensOf(rows) * rowWidth(shape), 1.5);
        const attrs = { ...cache.attrs(rows), rotary_dim: 64, factor: 1.1, norm_eps: 1e-6, scale: 0.125, window: 0 };
        const inputs = { ...cache.inputs(rows, qkv), inv_freq: Float32Array.from({ length: 32 }, (_, i) => 10000 ** (-i / 32)) };
        const both = runOp({ isa }, 'rope_and_attend', attrs, inputs);
        const rotated = runOp({ isa }, 'rope_and_cache', attrs, inputs);
        const then = { ...inputs, qkv: floats(rotated, 'qkv'), k: floats(rotated, 'k'), v: floats(rotated, 'v') };
        assert.deepEqual(floats(both, 'out'), floats(runOp({ isa }, 'attention', attrs, then), 'out'));
        for (const name of ['k', 'v']) assert.deepEqual(floats(both, name), floats(rotated, name));
      }
    });

    it('attention over several hundred keys with far apart scores stays exact', () => {
      const random = randomSource(12);
      const shape: PagedShape = { heads: 4, kvHeads: 1, headDim: 64, blockSize: 16, kvDtype: 'bf16', lengths: [600] };
      const cache = new PagedCache(shape, random);
      const rows = [{ slot: 0, start: 599, count: 1 }];
      for (const spread of [0.01, 1, 30]) {
        const qkv = randomFloats(random, rowWidth(shape), spread);
        const error = normalizedError(attend(cache, rows, qkv, 0, { isa }), attendReference(cache, rows, qkv, 0));
        assert.ok(error <= F32_BOUND, `spread ${spread}: ${error}`);
      }
    });

    it('attention gives a token the same bits alone, in chunks, in a mixed batch and on two threads', () => {
      const random = randomSource(13);
      for (const heads of [2, 6, 16]) {
        const shape: PagedShape = { heads, kvHeads: 2, headDim: 80, blockSize: 16, kvDtype: 'bf16', lengths: [210, 40] };
        const cache = new PagedCache(shape, random);
        const width = rowWidth(shape);
        const qkv = randomFloats(random, 210 * width);
        for (const window of [0, 50]) {
          const whole = attend(cache, [{ slot: 0, start: 0, count: 210 }], qkv, window, { isa, threads: 2 });
          const per = heads * shape.headDim;
          for (const [start, count] of [
            [0, 1],
            [209, 1],
            [64, 7],
            [100, 33],
            [31, 2],
            [120, 90],
          ] as const) {
            const other = { slot: 1, start: 5, count: 3 };
            const mixed = new Float32Array((count + 3) * width);
            mixed.set(randomFloats(random, 3 * width));
            mixed.set(qkv.subarray(start * width, (start + count) * width), 3 * width);
            const out = attend(cache, [other, { slot: 0, start, count }], mixed, window, { isa });
            assert.deepEqual(out.subarray(3 * per), whole.subarray(start * per, (start + count) * per), `${start}+${count} of ${window}`);
          }
        }
      }
    });

    it('attention of picked tokens alone gives them the bits that they have among all, and leaves rows without picks alone', () => {
      const random = randomSource(16);
      const shape: PagedShape = { heads: 6, kvHeads: 2, headDim: 64, blockSize: 16, kvDtype: 'bf16', lengths: [150, 90, 40] };
      const cache = new PagedCache(shape, random);
      const rows: StepRow[] = [
        { slot: 0, start: 20, count: 130 },
        { slot: 2, start: 39, count: 1 },
        { slot: 1, start: 0, count: 90 },
      ];
      const qkv = randomFloats(random, tokensOf(rows) * rowWidth(shape));
      const all = attend(cache, rows, qkv, 0, { isa });
      const width = shape.heads * shape.headDim;
      const row = (out: Float32Array, token: number) => out.subarray(token * width, (token + 1) * width);
      for (const picks of [[129], [130, 129], [220, 131], [3, 130, 90, 3, 40], Array.from({ length: 221 }, (_, i) => 220 - i)]) {
        const inputs = { ...cache.inputs(rows, qkv), picks: Int32Array.from(picks) };
        const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(shape.headDim), window: 0, num_picks: picks.length };
        const out = floats(runOp({ isa, threads: 2 }, 'attention', attrs, inputs), 'out');
        for (const token of picks) assert.deepEqual(row(out, token), row(all, token), `token ${token} of ${picks}`);
        if (picks.some((token) => token > 130)) continue;
        assert.ok(out.subarray(131 * width).every((value) => value === 0));
      }
    });

    it('attention never reads blocks before the window or keys after the query', () => {
      const random = randomSource(14);
      const shape: PagedShape = { heads: 2, kvHeads: 1, headDim: 64, blockSize: 16, kvDtype: 'f32', lengths: [200] };
      const cache = new PagedCache(shape, random);
      const rows = [{ slot: 0, start: 150, count: 2 }];
      const qkv = randomFloats(random, 2 * rowWidth(shape));
      const before = attend(cache, rows, qkv, 5, { isa });
      // Freed blocks have no entry any more; keys of later positions may be anything.
      cache.blocks.fill(-1_000_000, 0, 9);
      for (let j = 152; j < 200; j++) {
        for (let d = 0; d < 64; d++) cache.k[cache.at(0, 0, j, d)] = cache.v[cache.at(0, 0, j, d)] = NaN;
      }
      assert.deepEqual(attend(cache, rows, qkv, 5, { isa }), before);
    });

    it('rope_and_cache rotates at positions up to a million, norms heads and writes only its own places', () => {
      const random = randomSource(15);
      for (let round = 0; round < 12; round++) {
        const headDim = [64, 96, 80, 128, 256, 8][round % 6]!;
        const shape: PagedShape = {
          ...{ heads: 4, kvHeads: 2, headDim, blockSize: [16, 1, 32][round % 3]!, kvDtype: floatTypes[round % 3]!, lengths: [60, 90] },
        };
        const cache = new PagedCache(shape, random);
        const rows = [
          { slot: 1, start: 80, count: 10 },
          { slot: 0, start: 3, count: 1 },
        ];
        const rotaryDim = round % 2 === 0 ? headDim : headDim / 2;
        // Frequencies above 1 stand for large positions: only the product counts.
        const invFreq = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => (i === 0 ? 11003.7 : 10000 ** ((-2 * i) / rotaryDim)));
        const qNorm = round % 4 < 2 ? randomFloats(random, headDim) : null;
        const kNorm = qNorm && randomFloats(random, headDim);
        const width = rowWidth(shape);
        const qkv = randomFloats(random, 11 * width);
        const spec = { rotary_dim: rotaryDim, factor: 1.1, norm_eps: 1e-6 };
        const norms = qNorm && kNorm ? { q_norm: qNorm, k_norm: kNorm } : {};
        const inputs = { ...cache.inputs(rows, qkv), inv_freq: invFreq, ...norms };
        const result = runOp({ isa, threads: 1 + (round % 2) }, 'rope_and_cache', { ...cache.attrs(rows), ...spec }, inputs);
        const rope = { invFreq, rotaryDim, factor: Math.fround(1.1), normEps: Math.fround(1e-6) };
        const wantK = Float64Array.from(cache.k);
        const wantV = Float64Array.from(cache.v);
        const wantQ: number[] = [];
        const gotQ: number[] = [];
        for (let t = 0; t < 11; t++) {
          const row = t < 10 ? rows[0]! : rows[1]!;
          const position = t < 10 ? 80 + t : 3;
          const head = (h: number) => qkv.subarray(t * width + h * headDim, t * width + (h + 1) * headDim);
          for (let h = 0; h < 4; h++) wantQ.push(...rotateHead(head(h), position, { ...rope, norm: qNorm }));
          gotQ.push(...floats(result, 'qkv').subarray(t * width, t * width + 4 * headDim));
          for (let h = 0; h < 2; h++) {
            wantK.set(rotateHead(head(4 + h), position, { ...rope, norm: kNorm }), cache.at(row.slot, h, position, 0));
            wantV.set(
              head(6 + h).map((x) => roundTo(shape.kvDtype, x)),
              cache.at(row.slot, h, position, 0),
            );
          }
        }
        const what = `head size ${headDim}, rotary ${rotaryDim}`;
        assert.ok(normalizedError(Float32Array.from(gotQ), Float64Array.from(wantQ)) <= F32_BOUND, what);
        assert.ok(normalizedError(floats(result, 'k'), wantK) <= STORED_BOUND[shape.kvDtype], what);
        assert.deepEqual(floats(result, 'v'), Float32Array.from(wantV));
        const touched = new Set<number>();
        for (let h = 0; h < 2; h++) for (let d = 0; d < headDim; d++) for (let j = 80; j < 90; j++) touched.add(cache.at(1, h, j, d));
        for (let h = 0; h < 2; h++) for (let d = 0; d < headDim; d++) touched.add(cache.at(0, h, 3, d));
        assert.ok(
          floats(result, 'k').every((x, i) => touched.has(i) || Object.is(x, cache.k[i])),
          what,
        );
      }
    });
  });
}
