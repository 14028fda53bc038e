/**
 * Linear layers on CUDA whose weights are codes of 8 and 4 bits with scales, quantized on the device, against float64 references of the
 * weights as they were. What the formats round is most of the difference: an error of another kind is far above.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, runOp, type Setup } from '../../helpers/native/op-table.js';
import { gatedMul, linear, normalizedError, randomFloats, randomSource, rmsNorm, roundAll } from '../../helpers/native/reference-ops.js';
import { close, quick, STORED, type Type } from './bounds.js';

const FLOAT8 = 2 * 0.03 ** 2;
/** Squared relative error of rounding to bf16, of a weight and of a sum. */
const BF16 = 2.8e-6;
/** Of numbers as they are here, the largest of 32: its square on average, where theirs is 1. */
const LARGEST = 5.13;
/** Sums of 256 squares scatter by 9 %, those above and those below the line: three times that. */
const SCATTER = 1 + 3 * Math.SQRT2 * Math.sqrt(2 / 256);
/**
 * Squared relative error of a sum of products. e4m3: 0.03 of a weight and as much of an input. Of integers: only weights are rounded, which
 * leaves s^2 / 12 of a step s; int8 has 254 steps between the largest of a block and its negative, and int4 15 between the largest and the
 * smallest, which the search for a better range brings from 6.1e-3 to 5.0e-3 (simulated).
 */
const ROUNDED = {
  fp8: FLOAT8,
  fp8_rows: FLOAT8,
  fp8_groups: FLOAT8,
  int8: SCATTER * ((LARGEST * (2 / 254) ** 2) / 12 + 2 * BF16),
  int4: SCATTER * (5.0e-3 + 2 * BF16),
};
/**
 * Of silu(g) u, where g and u each have that error: as much by u, and by g as often as E[g^2] E[gate'(g)^2] / E[gate(g)^2], which is 1 for
 * small and for large g, and below 1.1 between. The rest of the 4 is for samples, of which the largest few are most of the sum: all
 * shapes have 256 results or more.
 */
const GATED = 4;
type Dtype = keyof typeof ROUNDED;
const isInteger = (dtype: Dtype): boolean => dtype === 'int8' || dtype === 'int4';
/** What the same codes, made and multiplied on the CPU in float32, differ by: one row of 256 sums may scatter further than above. */
const onCpu = (attrs: Record<string, number | string>, given: Record<string, Float32Array>, want: Float64Array): number =>
  normalizedError(floats(runOp({ isa: 'reference', backend: 'cpu' }, 'linear', attrs, given), 'out'), want);
/** Codes and scales are the same on both, and what 16 bits add is below a hundredth of what codes round. */
const DRAWN = 1.02;
/** Rows, outputs, columns: of the kernels for up to 16, 128 and more rows, and widths that no kernel of codes takes. */
const sizes = [
  [1, 320, 176],
  [1, 256, 1024],
  [8, 64, 64],
  [9, 256, 1024],
  [16, 40, 200],
  [17, 256, 1024],
  [33, 320, 176],
  [64, 40, 200],
  [65, 64, 64],
  [128, 256, 512],
  [130, 320, 176],
  [300, 128, 512],
  [300, 40, 200],
] as const;

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  for (const dtype of ['fp8', 'fp8_rows', 'fp8_groups', 'int8', 'int4'] as const) {
    describe(`CUDA, ${type}, weights as ${dtype}`, () => {
      const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
      const rounded = (random: () => number, count: number, spread = 1): Float32Array =>
        roundAll(type, randomFloats(random, count, spread));

      it('every epilogue matches, for few and many rows, widths that no kernel of codes takes among them', () => {
        const random = randomSource(7);
        for (const [rows, outs, cols] of sizes.filter(([rows]) => !quick || rows < 40)) {
          const x = rounded(random, rows * cols);
          const [weight, wide] = [rounded(random, outs * cols, 0.2), rounded(random, 2 * outs * cols, 0.2)];
          const bias = rows % 2 === 0 ? rounded(random, outs) : null;
          const attrs = { rows, cols, outs, dtype };
          const given = bias === null ? { x, weight } : { x, weight, bias };
          const want = linear(x, weight, bias, cols);
          const rounding = Math.max(ROUNDED[dtype], isInteger(dtype) ? DRAWN * onCpu(attrs, given, want) : 0);
          const what = `${rows}x${outs}x${cols}`;
          close(floats(runOp(setup, 'linear', attrs, given), 'out'), want, rounding, `linear ${what}`);
          close(floats(runOp(setup, 'linear', { ...attrs, out_f32: 1 }, given), 'out'), want, rounding, `linear to float32 ${what}`);
          const inout = rounded(random, rows * outs, 4);
          const sum = want.map((value, i) => value + (inout[i] ?? 0));
          close(floats(runOp(setup, 'linear_add', attrs, { ...given, inout }), 'inout'), sum, rounding, `linear_add ${what}`);
          for (const gate of ['silu', 'gelu_tanh'] as const) {
            const gated = runOp(setup, 'linear_gated', { ...attrs, gate }, { x, weight: wide });
            close(
              floats(gated, 'out'),
              gatedMul(linear(x, wide, null, cols), outs, gate),
              GATED * rounding,
              `linear_gated ${gate} ${what}`,
            );
          }
          const norm = randomFloats(random, cols, 2);
          const normed = linear(rmsNorm(x, norm, cols, 0.01), weight, bias, cols);
          const behind = runOp(setup, 'norm_linear', { ...attrs, eps: 0.01 }, { ...given, norm });
          close(floats(behind, 'out'), normed, 2 * rounding, `norm_linear ${what}`);
        }
      });

      if (isInteger(dtype)) {
        it('rows are looked up as the numbers that products multiply by, and zeros for ids that are not there', () => {
          const random = randomSource(8);
          for (const [vocab, cols] of [
            [9, 64],
            [40, 200],
            [33, 1024],
          ] as const) {
            const attrs = { cols, dtype };
            const weight = rounded(random, vocab * cols, 0.2);
            const ids = Int32Array.from([vocab + 3, 4, 7, 11, 7, vocab + 4, -1]);
            const looked = runOp(setup, 'embed_weight', { ...attrs, rows: 7, vocab, first_id: 4, scale: 1.5 }, { weight, ids });
            const identity = Float32Array.from({ length: cols * cols }, (_, i) => (i % (cols + 1) === 0 ? 1 : 0));
            const columns = floats(
              runOp(setup, 'linear', { ...attrs, rows: cols, outs: vocab, out_f32: 1 }, { x: identity, weight }),
              'out',
            );
            const want = Float64Array.from({ length: 7 * cols }, (_, i) => {
              const row = (ids[Math.floor(i / cols)] ?? 0) - 4;
              return row < 0 || row >= vocab ? 0 : 1.5 * (columns[(i % cols) * vocab + row] ?? 0);
            });
            const found = floats(looked, 'out');
            close(found, want, 4 * STORED[type], `embed_weight ${vocab}x${cols}`);
            assert.ok(found.subarray(5 * cols).every((value) => value === 0));
          }
        });
      }
    });
  }
}
