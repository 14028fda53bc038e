/** Weights quantized to int8 and int4: the quantizer, the products on every kernel set against float64, and their batch invariance. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, isas, roundsActivations, runOp } from '../helpers/native/op-table.js';
import { floatTypes, linear, normalizedError, randomFloats, randomInt, randomSource, roundAll } from '../helpers/native/reference-ops.js';

/** Squared relative error of float32 arithmetic over a few thousand terms. */
const F32_BOUND = 1e-11;
/** Squared relative error of quantized normal weights: a step is 1/127 of the largest of 32, or 1/15 of their range. */
const QUANT_BOUND = { int8: 5e-5, int4: 8e-3 } as const;
const formats = ['int8', 'int4'] as const;
type Format = (typeof formats)[number];
const block = 32;

function dequantized(weight: Float32Array, cols: number, dtype: Format): Float32Array {
  return floats(runOp({ isa: 'reference' }, 'quantize', { rows: weight.length / cols, cols, dtype }, { weight }), 'out');
}

/** Sum of 12 uniform numbers: normal enough. */
function normals(random: () => number, count: number, sigma: number): Float32Array {
  return Float32Array.from({ length: count }, () => {
    let sum = -6;
    for (let i = 0; i < 12; i++) sum += random();
    return sum * sigma;
  });
}

/** Squared error of a part rounded to so many steps of its largest value, as a share of that value. */
function roundingError(part: Float32Array, inverse: number, steps: number): number {
  return (
    part.reduce((sum, v) => {
      const wanted = Math.fround(v * inverse);
      return sum + (wanted - roundEven(wanted)) ** 2;
    }, 0) /
    steps ** 2
  );
}

/** What a kernel set with byte dot products makes of its activations: 8 bits, one scale for 32 inputs, the best of sixteen. */
function roundedRows(x: Float32Array, cols: number): Float32Array {
  const out = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += cols) {
    for (let k = row; k < row + cols; k += block) {
      const part = x.subarray(k, Math.min(k + block, row + cols));
      const largest = part.reduce((top, v) => Math.max(top, Math.abs(v)), 0);
      let [steps, least] = [127, Number.POSITIVE_INFINITY];
      for (let i = 0; i < 16; i++) {
        const tried = Math.fround(127.45 - 0.5 * i);
        const error = roundingError(part, Math.fround(tried / largest), tried);
        if (error < least) [steps, least] = [tried, error];
      }
      const scale = Math.fround(largest / steps);
      const inverse = largest > 0 ? Math.fround(steps / largest) : 0;
      part.forEach((v, i) => {
        out[k + i] = Math.fround(roundEven(Math.fround(v * inverse)) * scale);
      });
    }
  }
  return out;
}

function roundEven(v: number): number {
  const low = Math.floor(v);
  const rest = v - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low;
}

describe('the quantizer', () => {
  it('keeps normal weights within the error of its step, and int4 better than plain rounding of the range', () => {
    const random = randomSource(21);
    const weight = normals(random, 64 * 256, 0.02);
    for (const dtype of formats) {
      const error = normalizedError(dequantized(weight, 256, dtype), Float64Array.from(weight));
      assert.ok(error <= QUANT_BOUND[dtype], `${dtype}: ${error}`);
    }
    const plain = weight.slice();
    for (let k = 0; k < plain.length; k += block) {
      const part = plain.subarray(k, k + block);
      const low = Math.min(...part);
      const step = (Math.max(...part) - low) / 15;
      part.forEach((v, i) => {
        part[i] = Math.round((v - low) / step) * step + low;
      });
    }
    const want = Float64Array.from(weight);
    assert.ok(normalizedError(dequantized(weight, 256, 'int4'), want) < 0.95 * normalizedError(plain, want));
  });

  it('keeps zeros, constants, huge and tiny blocks, and turns a block with NaN or infinity into NaN', () => {
    for (const dtype of formats) {
      const cases: Record<string, (i: number) => number> = {
        zeros: () => 0,
        constant: () => -0.75,
        huge: (i) => (i % 16) * 2e37,
        tiny: (i) => (i % 16) * 1e-36,
        'one outlier': (i) => (i === 7 ? 1 : 0),
      };
      for (const [name, value] of Object.entries(cases)) {
        const weight = Float32Array.from({ length: block }, (_, i) => value(i));
        const got = dequantized(weight, block, dtype);
        const spread = Math.max(...weight) - Math.min(...weight);
        const step = dtype === 'int8' ? Math.max(...weight.map(Math.abs)) / 127 : spread / 15;
        const bound = step + 2 ** -8 * Math.abs(weight[0]!);
        got.forEach((v, i) => {
          assert.ok(Math.abs(v - weight[i]!) <= bound, `${dtype} ${name} ${i}: ${v} for ${weight[i]}`);
        });
      }
      for (const bad of [Number.NaN, Infinity, -Infinity]) {
        const weight = new Float32Array(2 * block).fill(1);
        weight[3] = bad;
        const x = new Float32Array(2 * block).fill(1);
        for (const isa of isas) {
          const out = floats(runOp({ isa }, 'linear', { rows: 1, cols: 2 * block, outs: 1, dtype }, { x, weight }), 'out');
          assert.ok(Number.isNaN(out[0]), `${dtype} ${isa} ${bad}: ${out[0]}`);
        }
      }
    }
  });
});

for (const isa of isas) {
  describe(`quantized products of ${isa}`, () => {
    const rounds = roundsActivations(isa);

    it('match float64 of the dequantized weights for ragged shapes, with and without bias, filled in parts', () => {
      const random = randomSource(22);
      const shapes = [
        [1, 1, 1],
        [1, 31, 3],
        [1, 64, 320],
        [1, 257, 133],
        [2, 255, 70],
        [3, 256, 32],
        [5, 96, 40],
        [7, 600, 65],
        [13, 100, 200],
        [25, 1100, 48],
      ] as const;
      for (const dtype of formats) {
        for (const [rows, cols, outs] of shapes) {
          const x = randomFloats(random, rows * cols);
          const weight = normals(random, outs * cols, 0.1);
          const bias = randomInt(random, 0, 1) === 1 ? randomFloats(random, outs) : null;
          const attrs = { rows, cols, outs, dtype, parts: Math.min(outs, 3) };
          const out = floats(runOp({ isa }, 'linear', attrs, bias === null ? { x, weight } : { x, weight, bias }), 'out');
          const kept = dequantized(weight, cols, dtype);
          const error = normalizedError(out, linear(rounds ? roundedRows(x, cols) : x, kept, bias, cols));
          assert.ok(error <= F32_BOUND, `${dtype} ${rows}x${cols}x${outs}: normalized error ${error}`);
        }
      }
    });

    it('take weights that are stored in 16 bits', () => {
      const random = randomSource(23);
      for (const stored of floatTypes) {
        for (const dtype of formats) {
          const x = randomFloats(random, 2 * 96);
          const weight = roundAll(stored, normals(random, 37 * 96, 0.1));
          const attrs = { rows: 2, cols: 96, outs: 37, dtype };
          const out = runOp({ isa }, 'linear', { ...attrs, source_dtype: stored }, { x, weight });
          assert.deepEqual(out, runOp({ isa }, 'linear', attrs, { x, weight }), `${stored} to ${dtype}`);
        }
      }
    });

    it('give a row the same bits alone and in any batch, on one thread and on two', () => {
      const random = randomSource(24);
      const cols = 1060;
      const outs = 500;
      const x = randomFloats(random, 400 * cols);
      const weight = randomFloats(random, outs * cols, 0.1);
      const bias = randomFloats(random, outs);
      const most = isa === 'reference' ? 15 : 400;
      for (const dtype of formats) {
        const run = (first: number, rows: number, threads: number) => {
          const inputs = { x: x.subarray(first * cols, (first + rows) * cols), weight, bias };
          return floats(runOp({ isa, threads }, 'linear', { rows, cols, outs, dtype }, inputs), 'out');
        };
        const whole = run(0, most, 2);
        for (const rows of [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, Math.min(20, most - 2), most - 2]) {
          assert.deepEqual(run(2, rows, 1), whole.subarray(2 * outs, (2 + rows) * outs), `${dtype} ${rows} rows`);
        }
        assert.deepEqual(run(most - 1, 1, 2), whole.subarray((most - 1) * outs));
      }
    });
  });
}
