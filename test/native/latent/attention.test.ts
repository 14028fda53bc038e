/**
 * Latent attention on every kernel set: over the cached latents themselves it gives what attention over the keys and values that are made
 * from them gives in float64, writes only its own places of the cache, and is invariant to batching and chunking.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { LatentCase, type LatentShape } from '../../helpers/native/latent-op.js';
import { narrowTypes } from '../../helpers/native/narrow-cache.js';
import { isas, type StepRow } from '../../helpers/native/op-table.js';
import { floatTypes, normalizedError, randomFloats, randomInt, randomSource } from '../../helpers/native/reference-ops.js';

/** Squared relative errors: of sums in float32, and of a cache that is rounded. */
const F32_BOUND = 1e-10;
const STORED_BOUND = { f32: 1e-11, f16: 2 ** -22, bf16: 2 ** -16, fp8: 2 ** -9, int8: 2 ** -13 } as const;
/** As DeepSeek V3 has them, but for heads. */
const LARGE = { rank: 512, nope: 128, rotary: 64, values: 128 } as const;
const SMALL = { rank: 64, nope: 64, rotary: 32, values: 64 } as const;

function check(isa: string, latent: LatentCase, threads: number): void {
  const { out, cached } = latent.run({ isa, threads });
  const what = JSON.stringify({ ...latent.shape, window: latent.window, type: latent.type });
  assert.ok(normalizedError(cached, latent.cachedReference()) <= STORED_BOUND[latent.shape.kvDtype], what);
  const error = normalizedError(out, latent.reference(cached));
  assert.ok(error <= F32_BOUND, `${what}: ${error}`);
}

for (const isa of isas) {
  describe(`kernels ${isa}`, () => {
    it('it matches expanded attention for mixed rows over sizes, heads, block sizes, types and windows', () => {
      const random = randomSource(31);
      for (let round = 0; round < 10; round++) {
        const sizes = [SMALL, LARGE, { rank: 24, nope: 10, rotary: 8, values: 12 }, { ...SMALL, rank: 256 }, SMALL][round % 5] ?? SMALL;
        const shape: LatentShape = {
          ...{ ...sizes, heads: [1, 4, 3, 2, 40][round % 5] ?? 1, blockSize: [1, 16, 32][round % 3] ?? 16 },
          ...{ kvDtype: floatTypes[round % 3] ?? 'f32', lengths: [90, 33, 70] },
        };
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start: randomInt(random, 0, 60), count: randomInt(random, 1, 30) },
          { slot: 2, start: randomInt(random, 0, 60), count: 1 },
        ];
        const type = floatTypes[randomInt(random, 0, 2)] ?? 'f32';
        check(isa, new LatentCase(shape, rows, type, random, round % 4 === 3 ? randomInt(random, 1, 40) : 0), 1 + (round % 2));
      }
    });

    it('it matches over a cache of 8 bits', () => {
      const random = randomSource(36);
      for (const kvDtype of narrowTypes) {
        for (const blockSize of [16, 1]) {
          const shape: LatentShape = { ...SMALL, heads: 3, blockSize, kvDtype, lengths: [90, 33] };
          const rows: StepRow[] = [
            { slot: 1, start: 32, count: 1 },
            { slot: 0, start: 40, count: 21 },
          ];
          check(isa, new LatentCase(shape, rows, 'f32', random), 2);
        }
      }
    });

    it('it matches over contexts of 1 to 4096 tokens', () => {
      const random = randomSource(32);
      for (const length of [1, 31, 32, 33, 1000, 4096]) {
        const shape: LatentShape = { ...SMALL, heads: 2, blockSize: 16, kvDtype: 'f32', lengths: [length] };
        check(isa, new LatentCase(shape, [{ slot: 0, start: length - 1, count: 1 }], 'f32', random), 1);
      }
    });

    it('it writes its own places only, and reads nothing behind a token', () => {
      const random = randomSource(33);
      const shape: LatentShape = { ...SMALL, heads: 4, blockSize: 16, kvDtype: 'f32', lengths: [120, 20] };
      const latent = new LatentCase(shape, [{ slot: 0, start: 40, count: 7 }], 'f32', random);
      const before = latent.run({ isa });
      const mine = new Set<number>();
      for (let j = 40; j < 47; j++) for (let d = 0; d < 96; d++) mine.add(latent.cache.at(0, 0, j, d));
      for (const [i, x] of before.cached.entries()) assert.ok(mine.has(i) || Object.is(x, latent.cache.k[i]), `${i}`);
      for (let j = 47; j < 120; j++) for (let d = 0; d < 96; d++) latent.cache.k[latent.cache.at(0, 0, j, d)] = Number.NaN;
      assert.deepEqual(latent.run({ isa }).out, before.out);
    });

    it('a token has the same bits alone, in chunks, in a mixed batch and on two threads', () => {
      const random = randomSource(34);
      for (const heads of [3, 40]) {
        const shape: LatentShape = { ...SMALL, heads, blockSize: 16, kvDtype: 'bf16', lengths: [100, 20] };
        const whole = new LatentCase(shape, [{ slot: 0, start: 0, count: 100 }], 'bf16', random);
        const all = whole.run({ isa, threads: 2 });
        const widths = { q: heads * 96, latent: 96, out: heads * 64 } as const;
        for (const [start, count] of [
          [0, 1],
          [99, 1],
          [31, 40],
          [64, 7],
        ] as const) {
          const part = new LatentCase(
            shape,
            [
              { slot: 1, start: 5, count: 2 },
              { slot: 0, start, count },
            ],
            'bf16',
            random,
          );
          for (const name of ['norm', 'keys', 'values'] as const) part[name].set(whole[name]);
          part.cache.blocks.set(whole.cache.blocks);
          part.cache.k.set(all.cached);
          for (const name of ['q', 'latent'] as const) {
            const width = widths[name];
            part[name].set(randomFloats(random, 2 * width));
            part[name].set(whole[name].subarray(start * width, (start + count) * width), 2 * width);
          }
          const { out } = part.run({ isa });
          assert.deepEqual(
            out.subarray(2 * widths.out),
            all.out.subarray(start * widths.out, (start + count) * widths.out),
            `${start}+${count}`,
          );
        }
      }
    });
  });
}
