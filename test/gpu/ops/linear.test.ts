/** Linear layers on CUDA with every epilogue, in both 16-bit types, against float64 references, over batches of 1 to 256 rows. */
import { describe, it } from 'node:test';
import { floats, runOp, type Setup } from '../../helpers/native/op-table.js';
import { gatedMul, linear, randomFloats, randomSource, rmsNorm, roundAll } from '../../helpers/native/reference-ops.js';
import { close, quick, STORED, type Type } from './bounds.js';

/** float32 sums of products of 16-bit numbers. */
const SUMMED = 1e-10;
/** silu(gate) * up, whose factors may have been rounded to 16 bits: a gate of size g moves silu by up to 1.1 g times the rounding. */
const GATED = { f16: 8 * STORED.f16, bf16: 8 * STORED.bf16 } as const;

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const rounded = (random: () => number, count: number, spread = 1): Float32Array => roundAll(type, randomFloats(random, count, spread));

    // Many numbers of rows of small weights, and few of the length of a model's rows.
    const small = [1, 2, 3, 5, 7, 8, 9, 16, 17, 32, 33, 64, 65, 100, 130, 256].flatMap((rows) =>
      [[64, 64] as const, [320, 176] as const, rows % 2 === 0 ? ([200, 1024] as const) : ([96, 520] as const)].map(
        (size) => [rows, ...size] as const,
      ),
    );
    const large = [
      [1, 1536, 4096],
      [16, 512, 4096],
      [64, 256, 4096],
      [256, 136, 4096],
      [1, 264, 14_336],
      [128, 64, 14_336],
    ] as const;
    const linearSizes = quick ? small.filter(([rows]) => rows < 40) : [...small, ...large];

    it('linear matches for few and many rows, with and without bias, in 16 bits and in float32', () => {
      const random = randomSource(3);
      for (const [rows, outs, cols] of linearSizes) {
        const x = rounded(random, rows * cols);
        const weight = rounded(random, outs * cols, 0.2);
        for (const bias of cols < 4096 ? [null, rounded(random, outs)] : [null]) {
          const inputs = bias === null ? { x, weight } : { x, weight, bias };
          const want = linear(x, weight, bias, cols);
          const attrs = { rows, cols, outs, dtype: type, parts: 3 };
          close(floats(runOp(setup, 'linear', attrs, inputs), 'out'), want, STORED[type], `linear ${rows}x${outs}x${cols}`);
          if (bias !== null) continue;
          const logits = floats(runOp(setup, 'linear', { ...attrs, out_f32: 1 }, inputs), 'out');
          close(logits, want, SUMMED, `linear to float32 ${rows}x${outs}x${cols}`);
        }
      }
    });

    it('a linear layer that adds to its result, and one that gates its halves, match', () => {
      const random = randomSource(4);
      for (const [rows, outs, cols] of linearSizes) {
        const x = rounded(random, rows * cols);
        const [weight, wide] = [rounded(random, outs * cols, 0.2), rounded(random, 2 * outs * cols, 0.2)];
        const inout = rounded(random, rows * outs, 4);
        const biases = rows % 2 === 0 ? [null] : [rounded(random, 2 * outs)];
        for (const bias of biases) {
          const half = bias?.subarray(0, outs) ?? null;
          const attrs = { rows, cols, outs, dtype: type };
          const added = runOp(setup, 'linear_add', attrs, { x, weight, inout, ...(half === null ? {} : { bias: half }) });
          const sum = linear(x, weight, half, cols).map((value, i) => value + (inout[i] ?? 0));
          // The product may be rounded to 16 bits before the sum is.
          close(floats(added, 'inout'), sum, 2 * STORED[type], `linear_add ${rows}x${outs}x${cols}`);
          const geglu = runOp(
            setup,
            'linear_gated',
            { ...attrs, gate: 'gelu_tanh' },
            { x, weight: wide, ...(bias === null ? {} : { bias }) },
          );
          const wantGeglu = gatedMul(linear(x, wide, bias, cols), outs, 'gelu_tanh');
          close(floats(geglu, 'out'), wantGeglu, GATED[type], `linear_gated gelu_tanh ${rows}x${outs}x${cols}`);
          const gated = runOp(setup, 'linear_gated', attrs, { x, weight: wide, ...(bias === null ? {} : { bias }) });
          const want = gatedMul(linear(x, wide, bias, cols), outs);
          // Both halves may be rounded, and a gate is about as wrong as its argument.
          close(floats(gated, 'out'), want, GATED[type], `linear_gated ${rows}x${outs}x${cols}`);
          if (rows * outs * cols > 4e6) continue; // the references take seconds
          // The product of the two weights is rounded, or the norm is.
          const norm = randomFloats(random, cols, 2);
          const normed = rmsNorm(x, norm, cols, 0.01);
          const normAttrs = { ...attrs, eps: 0.01 };
          const behind = runOp(setup, 'norm_linear', normAttrs, { x, weight, norm, ...(half === null ? {} : { bias: half }) });
          close(floats(behind, 'out'), linear(normed, weight, half, cols), 3 * STORED[type], `norm_linear ${rows}x${outs}x${cols}`);
          const gatedBehind = runOp(setup, 'norm_linear_gated', normAttrs, { x, weight: wide, norm, ...(bias === null ? {} : { bias }) });
          const wanted = gatedMul(linear(normed, wide, bias, cols), outs);
          close(floats(gatedBehind, 'out'), wanted, 2 * GATED[type], `norm_linear_gated ${rows}x${outs}x${cols}`);
        }
      }
    });
  });
}
