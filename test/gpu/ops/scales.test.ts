/** Keys and values in fp8 with a scale of the checkpoint on CUDA: what is written against the reference, and attention against float64. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { NarrowCache, toE4m3 } from '../../helpers/native/narrow-cache.js';
import { floats, runOp, type Setup, type StepRow } from '../../helpers/native/op-table.js';
import { attendReference } from '../../helpers/native/paged-attention.js';
import { randomFloats, randomSource, roundAll } from '../../helpers/native/reference-ops.js';
import { close, rowWidth, STORED, type Type, tokensOf } from './bounds.js';

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}, fp8 with scales`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    // The scales of all heads are one on CUDA.
    const scales = { k: Float32Array.of(0.03, 0.03), v: Float32Array.of(1.7, 1.7) };
    const rows: StepRow[] = [
      { slot: 1, start: 32, count: 1 },
      { slot: 0, start: 20, count: 40 },
    ];

    for (const headDim of [64, 128]) {
      const shape = { heads: 8, kvHeads: 2, headDim, blockSize: 16, lengths: [700, 40] };

      it(`values are divided by theirs before they are stored, heads of ${headDim}`, () => {
        const random = randomSource(41);
        const cache = new NarrowCache(shape, 'fp8', random, scales);
        const width = rowWidth(cache.shape);
        const qkv = roundAll(type, randomFloats(random, tokensOf(rows) * width, 300));
        const attrs = { ...cache.attrs(rows), rotary_dim: headDim, factor: 1, norm_eps: 0 };
        const invFreq = new Float32Array(headDim / 2);
        const got = runOp(setup, 'rope_and_cache', attrs, { ...cache.inputs(rows, qkv), inv_freq: invFreq });
        let token = 0;
        for (const { slot, start, count } of rows) {
          for (let i = 0; i < count; i++, token++) {
            for (let h = 0; h < shape.kvHeads; h++) {
              // Nothing is turned by frequencies of 0.
              for (const [what, head] of [
                ['k', shape.heads + h],
                ['v', shape.heads + shape.kvHeads + h],
              ] as const) {
                const given = qkv.subarray(token * width + head * headDim, token * width + (head + 1) * headDim);
                const want = [...given].map((x) => toE4m3(Math.fround(x / (scales[what][h] ?? 1))));
                assert.deepEqual(cache.row(floats(got, what), what, slot, h, start + i).codes, want, `${what} of token ${token}`);
              }
            }
          }
        }
      });

      it(`attention multiplies by them, to decode, in a long row and in a prompt, heads of ${headDim}`, () => {
        const random = randomSource(42);
        const cache = new NarrowCache(shape, 'fp8', random, scales);
        const sinks = Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6);
        for (const some of [rows, [{ slot: 0, start: 699, count: 1 }]]) {
          const qkv = roundAll(type, randomFloats(random, tokensOf(some) * rowWidth(cache.shape), 1.5));
          for (const [softcap, sink] of [
            [0, null],
            [2.5, null],
            [0, sinks],
          ] as const) {
            const attrs = { ...cache.attrs(some), scale: 1 / Math.sqrt(headDim), window: 0, softcap };
            const out = floats(runOp(setup, 'attention', attrs, { ...cache.inputs(some, qkv), ...(sink && { sinks: sink }) }), 'out');
            close(out, attendReference(cache, some, qkv, 0, softcap, sink), 8 * STORED[type], `cap ${softcap}`);
          }
        }
      });
    }
  });
}
