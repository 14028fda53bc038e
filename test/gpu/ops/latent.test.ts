/**
 * Latent attention on CUDA, in both 16-bit types, against a float64 reference that makes the keys and values of every head: one token and
 * prompts, contexts of 1 to 8193 tokens, whose keys are cut into parts where tokens are few, and 1 to 128 heads.
 */
import { describe, it } from 'node:test';
import { LatentCase, type LatentShape } from '../../helpers/native/latent-op.js';
import type { Setup, StepRow } from '../../helpers/native/op-table.js';
import { randomInt, randomSource } from '../../helpers/native/reference-ops.js';
import { close, quick, STORED, type Type } from './bounds.js';

/** Queries, probabilities, what is attended and the result are rounded to 16 bits one after the other. */
const ATTENDED = { f16: 16 * STORED.f16, bf16: 16 * STORED.bf16 } as const;
const CACHED = { f16: 4 * STORED.f16, bf16: 4 * STORED.bf16 } as const;

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const check = (shape: LatentShape, rows: readonly StepRow[], random: () => number, window = 0): void => {
      const latent = new LatentCase(shape, rows, type, random, window);
      const { out, cached } = latent.run(setup);
      const what = JSON.stringify({ ...shape, rows: rows.length, window });
      close(cached, latent.cachedReference(), CACHED[type], `cache, ${what}`);
      close(out, latent.reference(cached), ATTENDED[type], what);
    };

    it('latent attention matches for mixed prefill and decode rows over sizes, heads, block sizes and windows', () => {
      const random = randomSource(41);
      for (let round = 0; round < 12; round++) {
        const rank = [64, 128, 256, 512][round % 4] ?? 64;
        const shape: LatentShape = {
          ...{ rank, nope: [64, 128][round % 2] ?? 64, rotary: [32, 64][round % 2] ?? 64, values: [64, 128][round % 2] ?? 64 },
          ...{
            heads: [4, 16, 1, 20, 32][round % 5] ?? 4,
            blockSize: [1, 16, 32, 64][round % 4] ?? 16,
            kvDtype: type,
            lengths: [200, 33, 70],
          },
        };
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start: randomInt(random, 0, 100), count: randomInt(random, 1, 80) },
          { slot: 2, start: randomInt(random, 0, 60), count: 1 },
        ];
        check(shape, rows, random, round % 4 === 3 ? randomInt(random, 1, 90) : 0);
      }
    });

    it('latent attention of one token matches over contexts of 1 to 8193 tokens', () => {
      const random = randomSource(42);
      for (const length of quick ? [1, 257] : [1, 31, 32, 33, 127, 129, 1000, 4096, 8193]) {
        const shape: LatentShape = {
          ...{ rank: 512, nope: 128, rotary: 64, values: 128 },
          ...{ heads: length > 1000 ? 2 : 16, blockSize: 16, kvDtype: type, lengths: [length, 40] },
        };
        check(
          shape,
          [
            { slot: 1, start: 17, count: 1 },
            { slot: 0, start: length - 1, count: 1 },
          ],
          random,
        );
      }
    });

    it('latent attention of 128 heads matches', () => {
      const random = randomSource(43);
      const shape: LatentShape = {
        rank: 512,
        nope: 128,
        rotary: 64,
        values: 128,
        heads: 128,
        blockSize: 64,
        kvDtype: type,
        lengths: [100],
      };
      check(shape, [{ slot: 0, start: 90, count: 3 }], random);
    });
  });
}
