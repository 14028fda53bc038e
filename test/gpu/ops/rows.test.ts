/** Ops on rows of activations on CUDA, in both 16-bit types, against float64 references. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, runOp, type Setup } from '../../helpers/native/op-table.js';
import { capped, gatedMul, gates, randomFloats, randomSource, rmsNorm, roundAll, summedRows } from '../../helpers/native/reference-ops.js';
import { close, STORED, type Type } from './bounds.js';

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
        const scaled = floats(runOp(setup, 'embed', { rows: 5, vocab: 9, cols, dtype: type, scale: 12.25 }, { table, ids }), 'out');
        close(
          scaled,
          Float64Array.from(want, (x) => 12.25 * x),
          STORED[type],
          'embed, scaled',
        );
        const weight = { rows: 5, vocab: 9, cols, dtype: type, source_dtype: type };
        assert.deepEqual(floats(runOp(setup, 'embed_weight', weight, { weight: table, ids }), 'out'), want);
        assert.deepEqual(floats(runOp(setup, 'gather_rows', { rows: 9, cols, count: 5 }, { x: table, ids }), 'out'), want);
      }
    });

    it('sum_rows adds rows in order, to the same bits at once and in pieces', () => {
      const random = randomSource(3);
      for (const cols of [8, 264, 4096]) {
        const rows = 300;
        const x = rounded(random, rows * cols, 3);
        const before = randomFloats(random, 3 * cols, 5);
        const run = (sums: Float32Array, ...entries: number[]): Float32Array => {
          const attrs = { rows, cols, sums: 3, count: entries.length / 4 };
          return floats(runOp(setup, 'sum_rows', attrs, { x, sums, entries: Int32Array.from(entries) }), 'sums');
        };
        const once = run(before, 2, 0, rows, 1, 0, 5, 1, 1);
        close(once.subarray(2 * cols), summedRows(x, cols, 0, rows), 1e-11, 'sum_rows');
        assert.deepEqual(once.subarray(0, cols), x.subarray(5 * cols, 6 * cols));
        assert.deepEqual(once.subarray(cols, 2 * cols), before.subarray(cols, 2 * cols));
        const pieces = run(run(run(before, 2, 0, 7, 1), 2, 7, 1, 0), 2, 8, rows - 8, 0);
        assert.deepEqual(pieces.subarray(2 * cols), once.subarray(2 * cols));
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
        const scaled = floats(runOp(setup, 'add', { rows, cols, scale: 0.22 }, { inout: x, x: other }), 'inout');
        const wantScaled = Float64Array.from(x, (value, i) => value + 0.22 * (other[i] ?? 0));
        close(scaled, wantScaled, STORED[type], 'add, scaled');
        const gateUp = rounded(random, rows * 2 * cols, 4);
        for (const gate of gates) {
          const gated = floats(runOp(setup, 'gated_mul', { rows, cols, gate }, { gate_up: gateUp }), 'out');
          close(gated, gatedMul(gateUp, cols, gate), STORED[type], `gated_mul ${gate}`);
        }
        const logits = randomFloats(random, rows * cols, 40);
        const cappedLogits = floats(runOp(setup, 'cap_logits', { rows, cols, scale: 0.5, cap: 8 }, { logits }), 'logits');
        close(
          cappedLogits,
          Float64Array.from(logits, (l) => capped(l, 0.5, 8)),
          1e-11,
          'cap_logits',
        );
        if (cols < 64) continue;
        const columns = { rows, cols, first: cols / 4, count: cols / 2, eps: 1e-5 };
        const part = floats(runOp(setup, 'rms_norm_columns', columns, { x, weight: weight.subarray(0, cols / 2) }), 'x');
        const wantPart = Float64Array.from(x);
        for (let r = 0; r < rows; r++) {
          const at = r * cols + cols / 4;
          wantPart.set(rmsNorm(x.subarray(at, at + cols / 2), weight, cols / 2, 1e-5), at);
        }
        close(part, wantPart, STORED[type], 'rms_norm_columns');
      }
    });
  });
}
