/** What adapters add to products on CUDA, in both 16-bit types, against float64: rows of several adapters and of none in one batch. */
import { describe, it } from 'node:test';
import { type AdaptedSize, adaptedProduct } from '../../helpers/native/adapted-products.js';
import { floats, runOp, type Setup } from '../../helpers/native/op-table.js';
import { gatedMul, gates, randomFloats, randomSource, rmsNorm } from '../../helpers/native/reference-ops.js';
import { close, quick, STORED, type Type } from './bounds.js';

/** The product is rounded before the sum and A x ahead of B, each as often as a result is. */
const SUM = 4;
/** As a gated product: both halves were rounded before. */
const GATED = 12;

const size = (rows: number, outs: number, cols: number, rank: number, places: number, sections: number): AdaptedSize => {
  return { rows, outs, cols, rank, places, sections };
};
const small = [
  size(1, 64, 64, 8, 1, 1),
  size(3, 96, 72, 16, 2, 3),
  size(16, 1, 64, 4, 3, 1), // the gate of shared experts has one output
  size(17, 320, 520, 24, 4, 2),
  size(33, 36, 176, 16, 33, 3), // sections of 12
  size(70, 288, 1032, 64, 5, 3),
];
const sizes = quick
  ? small.slice(0, 4)
  : [...small, size(32, 72, 14_336, 16, 32, 1), size(300, 256, 512, 16, 2, 2), size(4, 264, 512, 300, 2, 1)];

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const run = (op: string, attrs: Record<string, string | number>, inputs: Record<string, Float32Array | Int32Array>, name = 'out') =>
      floats(runOp(setup, op, attrs, inputs), name);

    it('a product gets what the adapter of each row adds, stored, in float32, added to what is there, and behind a norm', () => {
      const random = randomSource(11);
      for (const s of sizes) {
        const what = `${s.rows}x${s.outs}x${s.cols}, rank ${s.rank} of ${s.places}`;
        const { inputs, attrs, want } = adaptedProduct(random, type, s);
        const wanted = want(inputs.x);
        close(run('linear', attrs, inputs), wanted, SUM * STORED[type], `linear ${what}`);
        close(run('linear', { ...attrs, out_f32: 1 }, inputs), wanted, STORED[type], `linear to float32 ${what}`);
        if (s.outs === 1) continue;
        const inout = Float32Array.from(wanted, (_, i) => i % 7);
        const sum = wanted.map((value, i) => value + (inout[i] ?? 0));
        close(run('linear_add', attrs, { ...inputs, inout }, 'inout'), sum, SUM * STORED[type], `linear_add ${what}`);
        const norm = randomFloats(random, s.cols, 2);
        // Models give A times the norm's weight where the weight takes it in, and the op has it given as it is.
        const plain = norm.fill(1);
        const behind = run('norm_linear', { ...attrs, eps: 1e-5 }, { ...inputs, norm: plain });
        close(behind, want(rmsNorm(inputs.x, plain, s.cols, 1e-5)), 2 * SUM * STORED[type], `norm_linear ${what}`);
      }
    });

    it('gates see what adapters add, in rows with one and in rows without', () => {
      const random = randomSource(12);
      for (const s of sizes.filter(({ outs }) => outs % 8 === 0)) {
        const { inputs, attrs, want } = adaptedProduct(random, type, { ...s, sections: 2 }, 2 * s.outs);
        for (const gate of s.rows === 17 ? gates : (['silu'] as const)) {
          const got = run('linear_gated', { ...attrs, gate }, inputs);
          close(got, gatedMul(want(inputs.x), s.outs, gate), GATED * STORED[type], `linear_gated ${gate} ${s.rows}x${s.outs}x${s.cols}`);
        }
      }
    });
  });
}
