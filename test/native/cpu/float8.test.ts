/**
 * Products of weights that the CPU keeps as 8-bit floats, against float64 products of the rounded weights. Those of checkpoints, with
 * scales of every kind, are in ../stored-formats.test.ts.
 */
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fixture, nativeError, openEngine } from '../../helpers/native/native-engine.js';
import { floats, isas, runOp } from '../../helpers/native/op-table.js';
import { linear, normalizedError, randomFloats, randomSource } from '../../helpers/native/reference-ops.js';
import { withModelFolder } from '../../helpers/native/tiny-model.js';

/** As of the other products, in ../ops.test.ts. */
const bound = 1e-11;
const shapes = [
  [1, 1, 1],
  [1, 128, 32],
  [2, 255, 31],
  [7, 600, 65],
  [13, 129, 200],
  [40, 514, 97],
] as const;

/** The nearest e4m3, of two the one with an even code. */
function float8(x: number): number {
  const size = Math.abs(x);
  const exponent = Math.max(-6, Math.floor(Math.log2(size)));
  const steps = size / 2 ** (exponent - 3);
  const below = Math.floor(steps);
  const up = steps - below > 0.5 || (steps - below === 0.5 && below % 2 === 1);
  return Math.sign(x) * Math.min(448, (up ? below + 1 : below) * 2 ** (exponent - 3));
}

/** Runs of `run` weights of a row have a scale, with which the largest of them is 448. */
function rounded(weight: Float32Array, cols: number, run: number): Float32Array {
  return weight.map((w, i) => {
    const row = i - (i % cols);
    const first = row + (i % cols) - ((i % cols) % run);
    const scale = Math.fround(
      weight.subarray(first, Math.min(first + run, row + cols)).reduce((a, b) => Math.max(a, Math.abs(b)), 0) / 448,
    );
    return scale === 0 ? 0 : float8(Math.fround(w / scale)) * scale;
  });
}

for (const isa of isas) {
  describe(`8-bit floats on ${isa}`, () => {
    for (const [dtype, run] of [
      ['fp8_rows', 1 << 20],
      ['fp8_groups', 128],
    ] as const) {
      it(`are multiplied as what they are: ${dtype}`, () => {
        const random = randomSource(31);
        for (const [rows, cols, outs] of shapes) {
          const x = randomFloats(random, rows * cols);
          // Rows of other sizes, so that a scale of another one would show, and numbers below the normal ones.
          const weight = randomFloats(random, outs * cols).map((w, i) => w * 10 ** (Math.floor(i / cols) % 4) * (i % 7 === 0 ? 1e-5 : 1));
          const bias = randomFloats(random, outs);
          const attrs = { rows, cols, outs, dtype, parts: Math.min(outs, 3) };
          const out = floats(runOp({ isa }, 'linear', attrs, { x, weight, bias }), 'out');
          const error = normalizedError(out, linear(x, rounded(weight, cols, run), bias, cols));
          assert.ok(error <= bound, `${rows}x${cols}x${outs}: normalized error ${error}`);
        }
      });

      it(`give a row the same bits alone and in any batch, on one thread and on two: ${dtype}`, () => {
        const random = randomSource(32);
        const [cols, outs, most] = [530, 500, isa === 'reference' ? 20 : 100];
        const [x, weight] = [randomFloats(random, most * cols), randomFloats(random, outs * cols)];
        const product = (first: number, rows: number, threads: number) =>
          floats(
            runOp({ isa, threads }, 'linear', { rows, cols, outs, dtype }, { x: x.subarray(first * cols, (first + rows) * cols), weight }),
            'out',
          );
        const whole = product(0, most, 2);
        for (const [first, rows] of [
          [0, 1],
          [5, 2],
          [1, 6],
          [4, 13],
        ] as const)
          assert.deepEqual(product(first, rows, 1), whole.subarray(first * outs, (first + rows) * outs), `rows ${first}+${rows}`);
      });
    }
  });
}

it('a checkpoint whose codes are no numbers is refused', () => {
  const pack = (file: string) => fixture('golden', 'quant-fp8-block', file);
  withModelFolder(null, (folder) => {
    copyFileSync(pack('config.json'), join(folder, 'config.json'));
    const bytes = readFileSync(pack('model.safetensors'));
    const header = Number(bytes.readBigUInt64LE(0));
    const tensors = JSON.parse(bytes.subarray(8, 8 + header).toString()) as Record<string, { data_offsets: readonly [number, number] }>;
    const at = tensors['model.layers.0.mlp.down_proj.weight']?.data_offsets[1] ?? Number.NaN;
    bytes[8 + header + at - 1] = 0xff;
    writeFileSync(join(folder, 'model.safetensors'), bytes);
    assert.throws(() => openEngine(folder).close(), nativeError('bad_model', /codes that are no numbers \(NaN\)/));
  });
});
