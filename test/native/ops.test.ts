/** Every op on activations, on every kernel set of this machine, against float64 references; and batch invariance of the linear. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadAddon } from '../../native/index.js';
import { adaptedProduct } from '../helpers/native/adapted-products.js';
import { floats, isas, runOp } from '../helpers/native/op-table.js';
import {
  capped,
  type FloatType,
  floatTypes,
  gatedMul,
  gates,
  linear,
  normalizedError,
  randomFloats,
  randomInt,
  randomSource,
  rmsNorm,
  roundAll,
  roundTo,
  summedRows,
} from '../helpers/native/reference-ops.js';

/** Squared relative error of float32 arithmetic over a few thousand terms, with a wide margin below what a wrong term would cause. */
const F32_BOUND = 1e-11;
/** Of results stored in 16 bits: the squared half unit in the last place. */
const STORED_BOUND: Record<FloatType, number> = { f32: F32_BOUND, f16: 2 ** -22, bf16: 2 ** -16 };

function assertClose(got: Float32Array, want: Float64Array, bound: number, what: string): void {
  const error = normalizedError(got, want);
  assert.ok(error <= bound, `${what}: normalized error ${error} is above ${bound}`);
}

it('the op table names every op', () => {
  const names = new Set(loadAddon().opNames());
  for (const op of [
    'embed',
    'embed_weight',
    'rms_norm',
    'add_rms_norm',
    'linear',
    'linear_add',
    'linear_gated',
    'norm_linear',
    'norm_linear_gated',
    'rope_and_cache',
    'attention',
    'rope_and_attend',
    'latent_attention',
    'gated_mul',
    'cap_logits',
    'rms_norm_columns',
    'add',
  ])
    assert.ok(names.has(op), op);
  for (const op of ['gather_rows', 'sum_rows', 'copy_blocks', 'swap_blocks', 'sample', 'score', 'apply_slots'])
    assert.ok(names.has(op), op);
});

it('a call of the op table with a wrong size or name is refused with one sentence', () => {
  const setup = { isa: 'reference' };
  assert.throws(() => runOp(setup, 'nonsense', {}, {}), /there is no op "nonsense"/);
  assert.throws(() => runOp(setup, 'add', { rows: 1, cols: 4 }, { inout: new Float32Array(3), x: new Float32Array(4) }), /needs 4/);
  assert.throws(() => runOp({ isa: 'mmx', backend: 'cpu' }, 'add', { rows: 1, cols: 1 }, {}), /"mmx" cannot run here/);
});

it('a call with noise makes its own inputs, the same each time, and answers with timings only', () => {
  const attrs = { rows: 3, cols: 64, outs: 32, dtype: 'bf16', noise: 1 };
  const result = runOp({ isa: 'reference' }, 'linear', attrs, {});
  assert.deepEqual(Object.keys(result), []);
  const { timings_us } = loadAddon().runOp({ op: 'linear', backend: 'cpu', isa: 'reference', threads: 1, attrs, inputs: {}, repeat: 3 });
  assert.equal(timings_us?.length, 3);
});

for (const isa of isas) {
  describe(`kernels ${isa}`, () => {
    it('embed copies table rows of each type exactly', () => {
      const random = randomSource(1);
      for (const dtype of floatTypes) {
        for (const cols of [1, 7, 8, 64, 100]) {
          const table = roundAll(dtype, randomFloats(random, 9 * cols, 30));
          const ids = Int32Array.from([8, 0, 3, 3, 7]);
          const out = floats(runOp({ isa }, 'embed', { rows: 5, vocab: 9, cols, dtype }, { table, ids }), 'out');
          const want = Float32Array.from([...ids].flatMap((id) => [...table.subarray(id * cols, (id + 1) * cols)]));
          assert.deepEqual(out, want);
          const scaled = floats(runOp({ isa }, 'embed', { rows: 5, vocab: 9, cols, dtype, scale: 12.25 }, { table, ids }), 'out');
          assertClose(
            scaled,
            Float64Array.from(want, (x) => 12.25 * x),
            F32_BOUND,
            `embed ${cols}, scaled`,
          );
        }
      }
    });

    it('embed_weight looks up the rows that products multiply by, and zeros for ids that it has not', () => {
      const random = randomSource(2);
      for (const dtype of floatTypes) {
        for (const cols of [32, 64, 104]) {
          const attrs = { cols, dtype, source_dtype: 'f32' };
          const weight = randomFloats(random, 9 * cols, 3);
          const ids = Int32Array.from([12, 4, 7, 3, 7, 13, -1]);
          const found = floats(
            runOp({ isa }, 'embed_weight', { ...attrs, rows: 7, vocab: 9, first_id: 4, scale: 1.5 }, { weight, ids }),
            'out',
          );
          const identity = Float32Array.from({ length: cols * cols }, (_, i) => (i % (cols + 1) === 0 ? 1 : 0));
          const columns = floats(runOp({ isa: 'reference' }, 'linear', { ...attrs, rows: cols, outs: 9 }, { x: identity, weight }), 'out');
          const want = Float64Array.from({ length: 7 * cols }, (_, i) => {
            const row = (ids[Math.floor(i / cols)] ?? 0) - 4;
            return row < 0 || row > 8 ? 0 : 1.5 * (columns[(i % cols) * 9 + row] ?? 0);
          });
          assertClose(found, want, F32_BOUND, `embed_weight ${dtype} ${cols}`);
        }
      }
      const quantized = { rows: 1, vocab: 9, cols: 32, dtype: 'int8', source_dtype: 'f32' };
      const inputs = { weight: randomFloats(random, 9 * 32), ids: Int32Array.of(1) };
      assert.throws(() => runOp({ isa }, 'embed_weight', quantized, inputs), /rows of this format are not looked up/);
    });

    it('16-bit values are stored with ties to even, subnormals, infinities and NaN included', () => {
      const special = [
        0,
        -0,
        1,
        1.00390625,
        1.01171875,
        65504,
        65519,
        65520,
        1e30,
        6e-8,
        3e-8,
        2.98e-8,
        6.1e-5,
        -6.1e-5,
        1e-40,
        Infinity,
        -Infinity,
      ];
      const random = randomSource(2);
      const values = [...special, ...randomFloats(random, 79, 100)];
      for (const kvDtype of ['f16', 'bf16'] as const) {
        const v = Float32Array.from({ length: 96 }, (_, i) => values[i]!);
        const qkv = new Float32Array(3 * 96);
        qkv.set(v, 2 * 96);
        const attrs = { heads: 1, kv_heads: 1, head_dim: 96, block_size: 1, num_blocks: 1, max_blocks: 1, max_slots: 1, num_rows: 1 };
        const zeros = new Float32Array(96);
        const inputs = {
          qkv,
          k: zeros,
          v: zeros,
          rows: Int32Array.of(0, 0, 1, 0),
          blocks: Int32Array.of(0),
          inv_freq: new Float32Array(48),
        };
        const rope = { kv_dtype: kvDtype, rotary_dim: 96, factor: 1, norm_eps: 0 };
        const stored = floats(runOp({ isa }, 'rope_and_cache', { ...attrs, ...rope }, inputs), 'v');
        assert.deepEqual(stored, roundAll(kvDtype, v));
        qkv.fill(NaN, 2 * 96);
        const nan = floats(runOp({ isa }, 'rope_and_cache', { ...attrs, ...rope }, inputs), 'v');
        assert.ok(nan.every(Number.isNaN));
      }
    });

    it('rms_norm and its fusion with the addition match for ragged widths', () => {
      const random = randomSource(3);
      for (const cols of [1, 5, 16, 33, 64, 257, 1000, 4096]) {
        const rows = 3;
        const x = randomFloats(random, rows * cols, 3);
        const inout = randomFloats(random, rows * cols, 3);
        const weight = randomFloats(random, cols);
        const attrs = { rows, cols, eps: 1e-5 };
        const plain = floats(runOp({ isa }, 'rms_norm', attrs, { x, weight }), 'out');
        assertClose(plain, rmsNorm(x, weight, cols, 1e-5), F32_BOUND, `rms_norm ${cols}`);
        const fused = runOp({ isa }, 'add_rms_norm', attrs, { inout, x, weight });
        const sum = inout.map((value, i) => value + x[i]!);
        assert.deepEqual(floats(fused, 'inout'), sum);
        assertClose(floats(fused, 'out'), rmsNorm(sum, weight, cols, 1e-5), F32_BOUND, `add_rms_norm ${cols}`);
        assert.deepEqual(floats(runOp({ isa }, 'add', { rows, cols }, { inout, x }), 'inout'), sum);
        const scaled = floats(runOp({ isa }, 'add', { rows, cols, scale: 0.22 }, { inout, x }), 'inout');
        const want = Float64Array.from(inout, (value, i) => value + 0.22 * x[i]!);
        assertClose(scaled, want, F32_BOUND, `add ${cols}, scaled`);
      }
    });

    it('rms_norm of some columns changes those and no others', () => {
      const random = randomSource(31);
      for (const [cols, first, count] of [
        [96, 0, 64],
        [96, 64, 32],
        [40, 8, 24],
      ] as const) {
        const rows = 3;
        const x = randomFloats(random, rows * cols, 3);
        const weight = randomFloats(random, count);
        const got = floats(runOp({ isa }, 'rms_norm_columns', { rows, cols, first, count, eps: 1e-5 }, { x, weight }), 'x');
        const want = Float64Array.from(x);
        for (let r = 0; r < rows; r++) {
          const at = r * cols + first;
          want.set(rmsNorm(x.subarray(at, at + count), weight, count, 1e-5), at);
        }
        assertClose(got, want, F32_BOUND, `columns ${first} to ${first + count} of ${cols}`);
        for (let i = 0; i < x.length; i++) if (i % cols < first || i % cols >= first + count) assert.equal(got[i], x[i]);
      }
    });

    it('cap_logits scales, and caps as tanh does, up to where it saturates', () => {
      const random = randomSource(32);
      for (const [scale, cap] of [
        [1, 30],
        [0.125, 0],
        [0.5, 8],
      ] as const) {
        const logits = randomFloats(random, 2 * 1000, 40);
        logits.set([0, -0, 1e4, -1e4, 1e-4]);
        const got = floats(runOp({ isa }, 'cap_logits', { rows: 2, cols: 1000, scale, cap }, { logits }), 'logits');
        const want = Float64Array.from(logits, (x) => capped(x, scale, cap));
        assertClose(got, want, F32_BOUND, `scale ${scale}, cap ${cap}`);
        for (let i = 0; i < got.length; i++) assert.ok(Math.abs(got[i]! - want[i]!) <= 1e-6 * Math.max(1, cap, Math.abs(want[i]!)));
      }
    });

    it('gated_mul is accurate from deep negative to large gates', () => {
      const random = randomSource(4);
      for (const gate of gates) {
        for (const cols of [1, 8, 19, 100, 1024]) {
          const gateUp = randomFloats(random, 2 * 2 * cols, 8);
          for (let i = 0; i < cols; i += 3) gateUp[i] = [-100, -88, -40, 0, 40, 88, 100][i % 7]!;
          const out = floats(runOp({ isa }, 'gated_mul', { rows: 2, cols, gate }, { gate_up: gateUp }), 'out');
          const want = gatedMul(gateUp, cols, gate);
          assertClose(out, want, F32_BOUND, `${gate} ${cols}`);
          if (gate !== 'silu') continue;
          for (let i = 0; i < out.length; i++) {
            assert.ok(Math.abs(out[i]! - want[i]!) <= 4e-7 * Math.abs(want[i]!) + 1e-35, `gate ${i}: ${out[i]} for ${want[i]}`);
          }
        }
      }
    });

    it('gather_rows and copy_blocks move exactly what they are told, in order', () => {
      const random = randomSource(5);
      const x = randomFloats(random, 6 * 10);
      const out = floats(runOp({ isa }, 'gather_rows', { rows: 6, cols: 10, count: 3 }, { x, ids: Int32Array.of(5, 0, 5) }), 'out');
      assert.deepEqual([...out], [...x.subarray(50), ...x.subarray(0, 10), ...x.subarray(50)]);
      for (const dtype of floatTypes) {
        const width = 2 * 4 * 8;
        const k = roundAll(dtype, randomFloats(random, 5 * width));
        const v = roundAll(dtype, randomFloats(random, 5 * width));
        const attrs = { num_blocks: 5, kv_heads: 2, block_size: 4, head_dim: 8, kv_dtype: dtype, count: 3 };
        const moved = runOp({ isa }, 'copy_blocks', attrs, { k, v, pairs: Int32Array.of(0, 3, 3, 4, 1, 0) });
        for (const [name, before] of [
          ['k', k],
          ['v', v],
        ] as const) {
          const want = before.slice();
          want.copyWithin(3 * width, 0, width);
          want.copyWithin(4 * width, 3 * width, 4 * width);
          want.copyWithin(0, width, 2 * width);
          assert.deepEqual(floats(moved, name), want);
        }
      }
    });

    it('sum_rows adds rows in order, to the same bits at once and in pieces', () => {
      const random = randomSource(14);
      for (const cols of [1, 7, 64, 300]) {
        const rows = 40;
        const x = randomFloats(random, rows * cols, 3);
        const before = randomFloats(random, 3 * cols, 5);
        const run = (sums: Float32Array, ...entries: number[]): Float32Array => {
          const attrs = { rows, cols, sums: 3, count: entries.length / 4 };
          return floats(runOp({ isa, threads: 2 }, 'sum_rows', attrs, { x, sums, entries: Int32Array.from(entries) }), 'sums');
        };
        const once = run(before, 2, 0, rows, 1, 0, 5, 1, 1);
        assertClose(once.subarray(2 * cols), summedRows(x, cols, 0, rows), F32_BOUND, 'a sum');
        assert.deepEqual(once.subarray(0, cols), x.subarray(5 * cols, 6 * cols), 'one row is copied');
        assert.deepEqual(once.subarray(cols, 2 * cols), before.subarray(cols, 2 * cols), 'no other sum is touched');
        const pieces = run(run(run(before, 2, 0, 7, 1), 2, 7, 1, 0), 0, 1, 0, 1, 2, 8, 32, 0);
        assert.deepEqual(pieces.subarray(2 * cols), once.subarray(2 * cols), 'in pieces');
        assert.deepEqual(pieces.subarray(0, cols), new Float32Array(cols), 'no rows');
      }
    });

    it('copy_blocks and swap_blocks move 8-bit blocks, and the scales of their rows with them', () => {
      const random = randomSource(6);
      for (const [type, bytes] of [
        ['int8', Math.ceil((3 * 5 * (8 + 4)) / 16) * 16], // 15 rows of 8 codes and a scale
        ['fp8', 3 * 5 * 8],
      ] as const) {
        const attrs = { num_blocks: 4, kv_heads: 3, block_size: 5, head_dim: 8, kv_dtype: type, count: 1 };
        const words = bytes / 4;
        const [k, v] = [randomFloats(random, 4 * words), randomFloats(random, 4 * words)];
        const copied = runOp({ isa }, 'copy_blocks', attrs, { k, v, pairs: Int32Array.of(1, 3) });
        const pairs = { outs: Int32Array.of(1, 0), ins: Int32Array.of(0, 3) };
        const swapped = runOp({ isa }, 'swap_blocks', { ...attrs, swap_blocks: 1, urgent: 1 }, { k, v, ...pairs });
        for (const [name, before] of Object.entries({ k, v })) {
          const want = before.slice();
          want.copyWithin(3 * words, words, 2 * words);
          for (const moved of [copied, swapped]) assert.deepEqual(floats(moved, name), want, type);
        }
      }
    });

    it('swap_blocks takes blocks to the host and brings them back elsewhere', () => {
      const random = randomSource(8);
      const width = 2 * 4 * 8;
      const attrs = { num_blocks: 5, kv_heads: 2, block_size: 4, head_dim: 8, count: 2, swap_blocks: 3, urgent: 1 };
      for (const dtype of floatTypes) {
        const [k, v] = [roundAll(dtype, randomFloats(random, 5 * width)), roundAll(dtype, randomFloats(random, 5 * width))];
        const swaps = { outs: Int32Array.of(4, 0, 1, 2), ins: Int32Array.of(2, 4, 0, 3) };
        const moved = runOp({ isa }, 'swap_blocks', { ...attrs, kv_dtype: dtype }, { k, v, ...swaps });
        for (const [name, before] of Object.entries({ k, v })) {
          const want = before.slice();
          want.copyWithin(3 * width, 4 * width, 5 * width);
          want.copyWithin(4 * width, width, 2 * width);
          assert.deepEqual(floats(moved, name), want);
        }
      }
    });

    it('a product gets what the adapter of each row adds, ahead of its epilogue', () => {
      const random = randomSource(23);
      const size = { rows: 5, outs: 24, cols: 40, rank: 3, places: 2, sections: 2 };
      const { inputs, attrs, want } = adaptedProduct(random, 'f32', size);
      assertClose(floats(runOp({ isa }, 'linear', attrs, inputs), 'out'), want(inputs.x), F32_BOUND, 'linear');
      const halves = adaptedProduct(random, 'f32', size, 48);
      const gated = gatedMul(halves.want(halves.inputs.x), 24);
      assertClose(floats(runOp({ isa }, 'linear_gated', halves.attrs, halves.inputs), 'out'), gated, 4 * F32_BOUND, 'linear_gated');
    });

    it('a linear layer that adds to its result, and one that gates its halves, match', () => {
      const random = randomSource(61);
      for (const dtype of floatTypes) {
        for (const [rows, cols, outs] of [
          [1, 5, 3],
          [2, 255, 31],
          [7, 600, 65],
          [40, 300, 97],
        ] as const) {
          const x = randomFloats(random, rows * cols);
          const [weight, wide] = [outs, 2 * outs].map((n) => roundAll(dtype, randomFloats(random, n * cols, 0.1))) as [
            Float32Array,
            Float32Array,
          ];
          const inout = randomFloats(random, rows * outs);
          for (const bias of [null, randomFloats(random, 2 * outs)]) {
            const attrs = { rows, cols, outs, dtype };
            const half = bias?.subarray(0, outs) ?? null;
            const added = floats(
              runOp({ isa }, 'linear_add', attrs, { x, weight, inout, ...(half === null ? {} : { bias: half }) }),
              'inout',
            );
            const sum = linear(x, weight, half, cols).map((value, i) => value + (inout[i] ?? 0));
            assertClose(added, sum, F32_BOUND, `linear_add ${dtype} ${rows}x${cols}x${outs}`);
            const geglu = runOp(
              { isa },
              'linear_gated',
              { ...attrs, gate: 'gelu_tanh' },
              { x, weight: wide, ...(bias === null ? {} : { bias }) },
            );
            const wantGeglu = gatedMul(linear(x, wide, bias, cols), outs, 'gelu_tanh');
            assertClose(floats(geglu, 'out'), wantGeglu, 4 * F32_BOUND, `linear_gated gelu_tanh ${dtype} ${rows}x${cols}x${outs}`);
            const gated = floats(runOp({ isa }, 'linear_gated', attrs, { x, weight: wide, ...(bias === null ? {} : { bias }) }), 'out');
            const want = gatedMul(linear(x, wide, bias, cols), outs);
            assertClose(gated, want, 4 * F32_BOUND, `linear_gated ${dtype} ${rows}x${cols}x${outs}`);
            const norm = randomFloats(random, cols, 2);
            const normed = rmsNorm(x, norm, cols, 0.01);
            const normAttrs = { ...attrs, eps: 0.01 };
            const behind = runOp({ isa }, 'norm_linear', normAttrs, { x, weight, norm, ...(half === null ? {} : { bias: half }) });
            assertClose(floats(behind, 'out'), linear(normed, weight, half, cols), 4 * F32_BOUND, 'norm_linear');
            const gatedBehind = runOp({ isa }, 'norm_linear_gated', normAttrs, {
              x,
              weight: wide,
              norm,
              ...(bias === null ? {} : { bias }),
            });
            assertClose(floats(gatedBehind, 'out'), gatedMul(linear(normed, wide, bias, cols), outs), 4 * F32_BOUND, 'norm_linear_gated');
          }
        }
      }
    });

    it('linear matches for ragged shapes, every weight type, with and without bias, filled in parts', () => {
      const random = randomSource(6);
      const shapes = [
        [1, 1, 1],
        [1, 5, 3],
        [1, 64, 320],
        [1, 257, 133],
        [2, 255, 31],
        [3, 256, 32],
        [7, 600, 65],
        [13, 100, 200],
        [25, 513, 48],
        [40, 300, 97],
      ] as const;
      for (const dtype of floatTypes) {
        for (const [rows, cols, outs] of shapes) {
          const x = randomFloats(random, rows * cols);
          const weight = roundAll(dtype, randomFloats(random, outs * cols, 0.1));
          const bias = randomInt(random, 0, 1) === 1 ? randomFloats(random, outs) : null;
          const attrs = { rows, cols, outs, dtype, parts: Math.min(outs, 3) };
          const inputs = bias === null ? { x, weight } : { x, weight, bias };
          const out = floats(runOp({ isa }, 'linear', attrs, inputs), 'out');
          assertClose(out, linear(x, weight, bias, cols), F32_BOUND, `linear ${dtype} ${rows}x${cols}x${outs}`);
        }
      }
    });

    it('linear converts weights that are stored in another type', () => {
      const random = randomSource(7);
      for (const stored of floatTypes) {
        for (const dtype of floatTypes) {
          const x = randomFloats(random, 2 * 51);
          const weight = roundAll(stored, randomFloats(random, 37 * 51));
          const attrs = { rows: 2, cols: 51, outs: 37, dtype, source_dtype: stored };
          const out = floats(runOp({ isa }, 'linear', attrs, { x, weight }), 'out');
          const kept = weight.map((w) => roundTo(dtype, w));
          assertClose(out, linear(x, kept, null, 51), F32_BOUND, `${stored} to ${dtype}`);
          assertClose(out, linear(x, weight, null, 51), STORED_BOUND[dtype] * 2, `${stored} to ${dtype}, unrounded`);
        }
      }
    });

    it('linear gives a row the same bits alone and in any batch, on one thread and on two', () => {
      const random = randomSource(8);
      for (const dtype of floatTypes) {
        // Wide enough for four panels side by side and for several chunks a thread.
        const cols = 530;
        const outs = 1000;
        const weight = roundAll(dtype, randomFloats(random, outs * cols, 0.1));
        const bias = randomFloats(random, outs);
        const x = randomFloats(random, 400 * cols);
        const run = (first: number, rows: number, threads: number) => {
          const inputs = { x: x.subarray(first * cols, (first + rows) * cols), weight, bias };
          return floats(runOp({ isa, threads }, 'linear', { rows, cols, outs, dtype }, inputs), 'out');
        };
        const most = isa === 'reference' ? 20 : 400;
        const whole = run(0, most, 2);
        for (const [first, rows] of [
          [0, 1],
          [5, 2],
          [2, 3],
          [1, 6],
          [3, 11],
          [4, 13],
          [0, most - 1],
        ] as const) {
          assert.deepEqual(run(first, rows, 1), whole.subarray(first * outs, (first + rows) * outs), `${dtype} rows ${first}+${rows}`);
        }
        assert.deepEqual(run(most - 1, 1, 2), whole.subarray((most - 1) * outs));
      }
    });
  });
}
