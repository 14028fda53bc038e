/** Keys and values of 8 bits on every kernel set: what is written to the last bit, attention against float64, and its invariance. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type HeadScales, NarrowCache, narrowTypes, toE4m3, toInt8 } from '../../helpers/native/narrow-cache.js';
import { floats, isas, runOp, type StepRow } from '../../helpers/native/op-table.js';
import { attend, attendReference, rowWidth, tokensOf } from '../../helpers/native/paged-attention.js';
import { normalizedError, randomFloats, randomInt, randomSource, rotateHead } from '../../helpers/native/reference-ops.js';

const F32_BOUND = 1e-11;
/** Of a rotated key, whose float32 steps may turn what is nearly a tie: as a share of half a step. */
const ROTATED = 2 ** -12;

const scalesOf = (random: () => number, kvHeads: number): HeadScales => {
  const some = (): Float32Array => Float32Array.from({ length: kvHeads }, () => 2 ** (8 * random() - 6));
  return { k: some(), v: some() };
};

for (const isa of isas) {
  describe(`8-bit keys and values, kernels ${isa}`, () => {
    for (const type of narrowTypes) {
      it(`${type}: rows are written as the reference writes them, to their own places, and finite numbers never become NaN`, () => {
        const random = randomSource(31);
        for (const headDim of [64, 8, 80, 256]) {
          const scales = type === 'fp8' && headDim !== 8 ? scalesOf(random, 2) : null;
          const shape = { heads: 4, kvHeads: 2, headDim, blockSize: headDim === 80 ? 1 : 16, lengths: [60, 40] };
          const cache = new NarrowCache(shape, type, random, scales);
          const rows: StepRow[] = [
            { slot: 1, start: 33, count: 5 },
            { slot: 0, start: 3, count: 1 },
          ];
          const width = (shape.heads + 2 * shape.kvHeads) * headDim;
          const qkv = randomFloats(random, 6 * width, 3);
          // The first value head of the first token: what 8 bits are hard on.
          const hard = [0, -0, 1e-38, -1e-42, 2 ** -10, 3 * 2 ** -10, 447, 448, 464, -465, 1e6, -3e38, 17, 19, 0.0146484375];
          qkv.set(hard.slice(0, headDim), (shape.heads + shape.kvHeads) * headDim);
          qkv.fill(0, width + (shape.heads + shape.kvHeads) * headDim, width + (shape.heads + shape.kvHeads + 1) * headDim);
          const invFreq = Float32Array.from({ length: headDim / 2 }, (_, i) => 10_000 ** ((-2 * i) / headDim));
          const attrs = { ...cache.attrs(rows), rotary_dim: headDim, factor: 1, norm_eps: 0 };
          const result = runOp({ isa, threads: 2 }, 'rope_and_cache', attrs, { ...cache.inputs(rows, qkv), inv_freq: invFreq });
          const [gotK, gotV] = [floats(result, 'k'), floats(result, 'v')];
          const [wantK, wantV] = [cache.bytes('k').slice(), cache.bytes('v').slice()];
          let token = 0;
          for (const { slot, start, count } of rows) {
            for (let position = start; position < start + count; position++, token++) {
              const head = (h: number) => qkv.subarray(token * width + h * headDim, token * width + (h + 1) * headDim);
              for (let h = 0; h < shape.kvHeads; h++) {
                const value = head(shape.heads + shape.kvHeads + h);
                const scale = scales?.v[h] ?? 1;
                const want =
                  type === 'fp8'
                    ? [...value].map((x) => toE4m3(Math.fround(x / scale)))
                    : [...new Uint8Array(Int8Array.from(toInt8(value).codes).buffer)];
                const got = cache.row(gotV, 'v', slot, h, position);
                assert.deepEqual(got.codes, want, `value of head ${h} at ${position}, head size ${headDim}`);
                const key = rotateHead(head(shape.heads + h), position, { invFreq, rotaryDim: headDim, factor: 1, norm: null, normEps: 0 });
                const mine = cache.row(gotK, 'k', slot, h, position);
                const largest = key.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
                for (const [d, number] of mine.numbers.entries()) {
                  const keyScale = scales?.k[h] ?? 1;
                  const size = Math.min(Math.abs(key[d]!), 448 * keyScale);
                  const step = type === 'fp8' ? Math.max(size / 16, 2 ** -10 * keyScale) : largest / 254;
                  const wanted = type === 'fp8' ? Math.sign(key[d]!) * size : key[d]!;
                  assert.ok(Math.abs(number - wanted) <= step * (1 + ROTATED), `key ${number} for ${key[d]} at ${position}`);
                }
                cache.copyRow(gotK, wantK, slot, h, position);
                cache.copyRow(gotV, wantV, slot, h, position);
              }
            }
          }
          assert.deepEqual(gotK, wantK, 'no other byte of the keys is touched');
          assert.deepEqual(gotV, wantV, 'no other byte of the values is touched');
          if (type !== 'fp8') continue;
          const written = [...gotK, ...gotV];
          assert.ok(written.every((code) => (code & 0x7f) !== 0x7f));
        }
      });

      it(`${type}: attention matches over head sizes, ratios, block sizes, windows, caps, sinks and scales of heads`, () => {
        const random = randomSource(32);
        const headDims = [64, 80, 128, 256, 8, 72];
        for (let round = 0; round < 6; round++) {
          const kvHeads = randomInt(random, 1, 2);
          const shape = {
            ...{ heads: kvHeads * [1, 2, 3, 4, 8][round % 5]!, kvHeads, headDim: headDims[round % 6]! },
            ...{ blockSize: [1, 16, 32][round % 3]!, lengths: [150, 33, 70] },
          };
          const cache = new NarrowCache(shape, type, random, type === 'fp8' && round % 2 === 0 ? scalesOf(random, kvHeads) : null);
          const rows: StepRow[] = [
            { slot: 1, start: 32, count: 1 },
            { slot: 0, start: randomInt(random, 0, 100), count: randomInt(random, 1, 50) },
            { slot: 2, start: randomInt(random, 0, 60), count: 1 },
          ];
          const qkv = randomFloats(random, tokensOf(rows) * rowWidth(cache.shape), 1.5);
          const sinks = Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6);
          for (const [window, cap, sink] of [
            [0, 0, null],
            [randomInt(random, 1, 90), 2.5, null],
            [0, 0, sinks],
          ] as const) {
            const out = attend(cache, rows, qkv, window, { isa, threads: 2 }, cap, sink);
            const error = normalizedError(out, attendReference(cache, rows, qkv, window, cap, sink));
            assert.ok(error <= F32_BOUND, `${JSON.stringify(shape)} window ${window}, cap ${cap}: ${error}`);
          }
        }
      });

      it(`${type}: a token has the same bits alone, in chunks, in a mixed batch and on two threads`, () => {
        const random = randomSource(33);
        const shape = { heads: 6, kvHeads: 2, headDim: 80, blockSize: 16, lengths: [210, 40] };
        const cache = new NarrowCache(shape, type, random, type === 'fp8' ? scalesOf(random, 2) : null);
        const width = rowWidth(cache.shape);
        const qkv = randomFloats(random, 210 * width);
        const whole = attend(cache, [{ slot: 0, start: 0, count: 210 }], qkv, 0, { isa, threads: 2 });
        const per = shape.heads * shape.headDim;
        for (const [start, count] of [
          [0, 1],
          [209, 1],
          [64, 7],
          [31, 2],
          [120, 90],
        ] as const) {
          const mixed = new Float32Array((count + 3) * width);
          mixed.set(randomFloats(random, 3 * width));
          mixed.set(qkv.subarray(start * width, (start + count) * width), 3 * width);
          const rows = [
            { slot: 1, start: 5, count: 3 },
            { slot: 0, start, count },
          ];
          const out = attend(cache, rows, mixed, 0, { isa });
          assert.deepEqual(out.subarray(3 * per), whole.subarray(start * per, (start + count) * per), `${start}+${count}`);
        }
      });
    }

    it('each code of fp8 is read as its number, and NaN as NaN', () => {
      const cache = new NarrowCache({ heads: 1, kvHeads: 1, headDim: 256, blockSize: 16, lengths: [1] }, 'fp8', randomSource(34));
      const rows = [{ slot: 0, start: 0, count: 1 }];
      cache.bytes('v').set(
        Array.from({ length: 256 }, (_, code) => code),
        cache.at(0, 0, 0, 0),
      );
      // A single key has all of the softmax.
      const out = attend(cache, rows, new Float32Array(rowWidth(cache.shape)), 0, { isa });
      const { numbers } = cache.row(cache.bytes('v'), 'v', 0, 0, 0);
      const withoutSignOfZero = numbers.map((x) => x + 0);
      assert.deepEqual([...out], withoutSignOfZero);
    });
  });
}
