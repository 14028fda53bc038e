/** The KV cache on CUDA, in both 16-bit types: rotation and writes against float64 references, copies and swaps of blocks against the CPU. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, PagedCache, type PagedShape, runOp, type Setup, type StepRow } from '../../helpers/native/op-table.js';
import { randomFloats, randomSource, rotateHead, roundAll } from '../../helpers/native/reference-ops.js';
import { close, quick, ROTATED, rowWidth, type Type, tokensOf } from './bounds.js';

/** At positions of thousands a float32 angle is exact to 2^-11 radians. */
const ROTATED_FAR = { f16: ROTATED.f16 + 2 ** -22, bf16: ROTATED.bf16 } as const;

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const rounded = (random: () => number, count: number, spread = 1): Float32Array => roundAll(type, randomFloats(random, count, spread));

    it('rotation of part of a head, with a factor, at positions up to 8192, for 256 sequences', () => {
      const random = randomSource(16);
      const batch = quick ? 20 : 256;
      for (const [headDim, rotaryDim, heads, kvHeads] of [
        [64, 32, 16, 1],
        [96, 96, 3, 3],
        [128, 64, 10, 2],
        [256, 128, 1, 1],
      ] as const) {
        const lengths = Array.from({ length: batch }, (_, i) => 1 + ((i * 131) % 64));
        lengths[batch - 1] = 8193;
        const shape: PagedShape = { heads, kvHeads, headDim, blockSize: 16, kvDtype: type, lengths };
        const cache = new PagedCache(shape, random);
        const rows = lengths.map((length, slot): StepRow => ({ slot, start: length - 1, count: 1 }));
        const qkv = rounded(random, batch * rowWidth(shape), 2);
        const invFreq = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => 500_000 ** (-i / (rotaryDim / 2)));
        const attrs = { ...cache.attrs(rows), rotary_dim: rotaryDim, factor: 1.25, norm_eps: 1e-6 };
        const result = runOp(setup, 'rope_and_cache', attrs, { ...cache.inputs(rows, qkv), inv_freq: invFreq });
        const spec = { invFreq, factor: 1.25, rotaryDim, norm: null, normEps: 0 };
        const [gotQ, wantQ, gotK, wantK]: [number[], number[], number[], number[]] = [[], [], [], []];
        for (const [token, row] of rows.entries()) {
          const base = token * rowWidth(shape);
          for (let h = 0; h < heads + kvHeads; h++) {
            const at = base + h * headDim;
            const to = h < heads ? at : cache.at(row.slot, h - heads, row.start, 0);
            const from = h < heads ? floats(result, 'qkv') : floats(result, 'k');
            (h < heads ? gotQ : gotK).push(...from.subarray(to, to + headDim));
            (h < heads ? wantQ : wantK).push(...rotateHead(qkv.subarray(at, at + headDim), row.start, spec));
          }
        }
        close(Float32Array.from(gotQ), Float64Array.from(wantQ), ROTATED_FAR[type], `q, head_dim ${headDim}`);
        close(Float32Array.from(gotK), Float64Array.from(wantK), ROTATED_FAR[type], `k, head_dim ${headDim}`);
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
