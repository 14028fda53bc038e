/**
 * Attention on CUDA, in both 16-bit types, against a float64 reference: batches of 1 to 256 rows, contexts of 1 to 8193 tokens, all head
 * sizes and 1 to 16 query heads a key head.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { floats, PagedCache, type PagedShape, runOp, type Setup, type StepRow } from '../../helpers/native/op-table.js';
import { attendVectors, randomFloats, randomInt, randomSource, rotateHead, roundAll } from '../../helpers/native/reference-ops.js';
import { close, quick, ROTATED, rowWidth, STORED, type Type, tokensOf } from './bounds.js';

/** Probabilities are rounded to 16 bits too before they meet the values. */
const ATTENDED = { f16: 4 * STORED.f16, bf16: 4 * STORED.bf16 } as const;
const everyToken = (): boolean => true;

/** Of the tokens that `chosen` says yes to; the others stay 0. */
function attendReference(
  cache: PagedCache,
  rows: readonly StepRow[],
  qkv: Float32Array,
  {
    window,
    softcap = 0,
    sinks = null,
    chosen = everyToken,
  }: {
    readonly window: number;
    readonly softcap?: number;
    readonly sinks?: Float32Array | null;
    readonly chosen?: (token: number) => boolean;
  },
): Float64Array {
  const { heads, kvHeads, headDim } = cache.shape;
  const out = new Float64Array(tokensOf(rows) * heads * headDim);
  const options = { scale: Math.fround(1 / Math.sqrt(headDim)), window, softcap };
  let token = 0;
  for (const row of rows) {
    for (let i = 0; i < row.count; i++, token++) {
      for (let h = 0; h < heads && chosen(token); h++) {
        const kvHead = Math.floor(h / (heads / kvHeads));
        const start = token * rowWidth(cache.shape) + h * headDim;
        const read = { k: cache.k, v: cache.v, at: (j: number) => cache.at(row.slot, kvHead, j, 0) };
        const own = { ...options, sink: sinks?.[h] ?? -Infinity };
        out.set(attendVectors(qkv.subarray(start, start + headDim), row.start + i, read, own), (token * heads + h) * headDim);
      }
    }
  }
  return out;
}

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };
    const rounded = (random: () => number, count: number, spread = 1): Float32Array => roundAll(type, randomFloats(random, count, spread));

    it('attention matches for mixed prefill and decode rows over head sizes, ratios, block sizes and windows', () => {
      const random = randomSource(11);
      const headDims = [64, 96, 128, 256];
      for (let round = 0; round < 16; round++) {
        const kvHeads = randomInt(random, 1, 2);
        const shape: PagedShape = {
          ...{ heads: kvHeads * ([1, 2, 3, 4, 8][round % 5] ?? 1), kvHeads, headDim: headDims[round % 4] ?? 64 },
          ...{ blockSize: [1, 16, 32][round % 3] ?? 16, kvDtype: type, lengths: [400, 33, 70] },
        };
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start: randomInt(random, 0, 100), count: randomInt(random, 1, 200) },
          { slot: 2, start: randomInt(random, 0, 60), count: 1 },
          { slot: 1, start: 0, count: 3 },
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 1.5);
        for (const window of [0, randomInt(random, 1, 90)]) {
          for (const softcap of [0, 2.5]) {
            const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(shape.headDim), window, softcap };
            const out = floats(runOp(setup, 'attention', attrs, cache.inputs(rows, qkv)), 'out');
            const what = `${JSON.stringify(shape)} window ${window} softcap ${softcap}`;
            close(out, attendReference(cache, rows, qkv, { window, softcap }), ATTENDED[type], what);
            const sinks = Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6);
            const sunk = floats(runOp(setup, 'attention', attrs, { ...cache.inputs(rows, qkv), sinks }), 'out');
            close(sunk, attendReference(cache, rows, qkv, { window, softcap, sinks }), ATTENDED[type], `${what}, with sinks`);
          }
        }
      }
    });

    it('decode attention matches for batches of 1 to 256 and contexts of 1 to 8193, all head sizes and ratios', () => {
      const random = randomSource(14);
      const headDims = [64, 96, 128, 256];
      const batches = quick ? [1, 5, 40] : [1, 2, 3, 7, 16, 40, 61, 100, 128, 129, 190, 255, 256, 1, 4, 9];
      for (const [round, batch] of batches.entries()) {
        const lengths = Array.from({ length: batch }, () => randomInt(random, 1, 1 + Math.floor((quick ? 600 : 12_000) / batch)));
        lengths[0] = quick ? 700 : [8193, 1, 4097, 8192][round % 4]!;
        const kvHeads = batch > 32 ? 1 : 1 + (round % 2);
        const shape: PagedShape = {
          ...{ heads: kvHeads * (1 + ((round * 5) % 16)), kvHeads, headDim: headDims[round % 4]! },
          ...{ blockSize: [16, 32, 64, 8][(round >> 1) % 4]!, kvDtype: type, lengths },
        };
        const cache = new PagedCache(shape, random);
        const rows = lengths
          .map((length, slot): StepRow => ({ slot, start: length - 1, count: 1 }))
          .sort((a, b) => ((a.slot * 7919) % 31) - ((b.slot * 7919) % 31));
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 1.5);
        const window = round % 3 === 2 ? randomInt(random, 1, 300) : 0;
        const softcap = round % 4 === 1 ? 3 : 0;
        const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(shape.headDim), window, softcap };
        const out = floats(runOp(setup, 'attention', attrs, cache.inputs(rows, qkv)), 'out');
        const { heads, headDim, blockSize } = shape;
        const what = `batch ${batch}, heads ${heads}/${kvHeads} of ${headDim}, blocks of ${blockSize}, first context ${lengths[0]}, window ${window}`;
        close(out, attendReference(cache, rows, qkv, { window, softcap }), ATTENDED[type], what);
      }
    });

    it('attention that rotates matches: batches of 1 to 256, all head sizes, whole heads and parts, with and without norms', () => {
      const random = randomSource(19);
      const headDims = [64, 96, 128, 256];
      const batches = quick ? [1, 9, 40] : [1, 7, 8, 9, 16, 33, 64, 128, 200, 256, 12, 20];
      for (const [round, batch] of batches.entries()) {
        const headDim = headDims[round % 4] ?? 64;
        const kvHeads = 1 + (round % 2);
        const lengths = Array.from({ length: batch }, () => randomInt(random, 1, 200));
        lengths[0] = 700;
        const shape: PagedShape = {
          ...{ heads: kvHeads * (1 + ((round * 5) % 16)), kvHeads, headDim, blockSize: [16, 32, 1, 8][(round >> 1) % 4] ?? 16 },
          ...{ kvDtype: type, lengths },
        };
        const cache = new PagedCache(shape, random);
        const rows = lengths.map((length, slot): StepRow => ({ slot, start: length - 1, count: 1 })).reverse();
        const qkv = rounded(random, batch * rowWidth(shape), 1.5);
        const rotaryDim = round % 5 === 3 ? 32 : headDim;
        const invFreq = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => 10000 ** (-i / (rotaryDim / 2)));
        const norm = round % 3 === 1 ? randomFloats(random, headDim, 1.5) : null;
        const window = round % 4 === 2 ? 90 : 0;
        const softcap = round % 4 === 3 ? 2.5 : 0;
        const sinks = round % 4 === 1 ? Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6) : null;
        const attrs = {
          ...{ ...cache.attrs(rows), rotary_dim: rotaryDim, factor: 1.1, norm_eps: 1e-6 },
          ...{ scale: 1 / Math.sqrt(headDim), window, softcap },
        };
        const inputs = {
          ...{ ...cache.inputs(rows, qkv), inv_freq: invFreq },
          ...(norm === null ? {} : { q_norm: norm, k_norm: norm }),
          ...(sinks === null ? {} : { sinks }),
        };
        const result = runOp(setup, 'rope_and_attend', attrs, inputs);
        const spec = { invFreq, factor: 1.1, rotaryDim, norm, normEps: 1e-6 };
        const rotated = qkv.slice();
        const [gotKeys, wantKeys]: [number[], number[]] = [[], []];
        for (const [token, row] of rows.entries()) {
          for (let h = 0; h < shape.heads + 2 * kvHeads; h++) {
            const at = token * rowWidth(shape) + h * headDim;
            const head = rotated.subarray(at, at + headDim);
            if (h < shape.heads + kvHeads) head.set(roundAll(type, Float32Array.from(rotateHead(head, row.start, spec))));
            if (h < shape.heads) continue;
            const isKey = h < shape.heads + kvHeads;
            const to = cache.at(row.slot, (h - shape.heads) % kvHeads, row.start, 0);
            const stored = floats(result, isKey ? 'k' : 'v').subarray(to, to + headDim);
            (isKey ? cache.k : cache.v).set(isKey ? stored : head, to);
            if (isKey) gotKeys.push(...stored);
            if (isKey) wantKeys.push(...head);
          }
        }
        const what = `batch ${batch}, ${shape.heads}/${kvHeads} of ${headDim}, ${rotaryDim} rotated, norms ${norm !== null}`;
        close(Float32Array.from(gotKeys), Float64Array.from(wantKeys), ROTATED[type], `keys, ${what}`);
        for (const name of ['k', 'v'] as const) assert.deepEqual(floats(result, name), cache[name], `the rest of ${name}, ${what}`);
        close(floats(result, 'out'), attendReference(cache, rows, rotated, { window, softcap, sinks }), ATTENDED[type], what);
      }
    });

    it('rows of 2 to 8 drafted tokens match beside others, all head sizes and ratios, with windows, caps and sinks', () => {
      const random = randomSource(18);
      const headDims = [64, 96, 128, 256];
      for (let round = 0; round < (quick ? 4 : 16); round++) {
        const kvHeads = randomInt(random, 1, 2);
        const shape: PagedShape = {
          ...{ heads: kvHeads * ([4, 1, 2, 8, 3, 16, 7][round % 7] ?? 1), kvHeads, headDim: headDims[round % 4] ?? 64 },
          ...{ blockSize: [16, 8, 32][round % 3] ?? 16, kvDtype: type, lengths: [1500, 33, 70, 16] },
        };
        const cache = new PagedCache(shape, random);
        const flags = ROW_FLAG.fromDevice;
        const rows: StepRow[] = [
          { slot: 1, start: 32, count: 1 },
          { slot: 0, start: randomInt(random, 0, 1492), count: 2 + (round % 7), flags },
          { slot: 2, start: randomInt(random, 0, 60), count: 5, flags },
          { slot: 3, start: 0, count: 8, flags },
          ...(round % 2 === 0 ? [] : [{ slot: 2, start: 0, count: 20 }]),
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 1.5);
        const sinks = Float32Array.from({ length: shape.heads }, (_, h) => 3 * h - 6);
        for (const [window, softcap] of [
          [0, 0],
          [randomInt(random, 1, 90), 0],
          [randomInt(random, 1, 90), 2.5],
        ] as const) {
          const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(shape.headDim), window, softcap };
          const out = floats(runOp(setup, 'attention', attrs, { ...cache.inputs(rows, qkv), ...(softcap > 0 ? { sinks } : {}) }), 'out');
          const wanted = attendReference(cache, rows, qkv, { window, softcap, ...(softcap > 0 ? { sinks } : {}) });
          close(out, wanted, ATTENDED[type], `${JSON.stringify(shape)} rows of ${2 + (round % 7)}, window ${window} softcap ${softcap}`);
        }
      }
    });

    it('prefill attention matches for prompts of up to 8193 tokens, whole, in chunks and after cached prefixes', () => {
      const random = randomSource(15);
      const cases: readonly { start: number; count: number }[][] = quick
        ? [
            [
              { start: 0, count: 300 },
              { start: 50, count: 17 },
            ],
          ]
        : [
            [{ start: 0, count: 8193 }],
            [
              { start: 4096, count: 4097 },
              { start: 0, count: 1 },
              { start: 8192, count: 1 },
            ],
            [
              { start: 1, count: 1023 },
              { start: 1000, count: 513 },
              { start: 0, count: 129 },
              { start: 77, count: 1 },
            ],
            Array.from({ length: 256 }, () => ({ start: randomInt(random, 0, 40), count: randomInt(random, 1, 24) })),
          ];
      for (const [round, parts] of cases.entries()) {
        for (const headDim of round === 3 ? [128] : [64, 96, 128, 256]) {
          const kvHeads = 1 + (round % 2);
          const ratio = round === 3 ? 16 : 1 + ((round * 3 + headDim / 32) % 8);
          const lengths = parts.map(({ start, count }) => start + count);
          const shape: PagedShape = {
            heads: kvHeads * ratio,
            kvHeads,
            headDim,
            blockSize: round % 2 === 0 ? 16 : 32,
            kvDtype: type,
            lengths,
          };
          const cache = new PagedCache(shape, random);
          const rows = parts.map((part, slot): StepRow => ({ slot, ...part }));
          const tokens = tokensOf(rows);
          const qkv = rounded(random, tokens * rowWidth(shape), 1.5);
          const window = round === 2 ? 500 : 0;
          const softcap = round === 1 ? 3 : 0;
          const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(headDim), window, softcap };
          const out = floats(runOp(setup, 'attention', attrs, cache.inputs(rows, qkv)), 'out');
          // Of a long prompt the first and last tokens and some between: the reference takes a while.
          const step = Math.max(1, Math.floor(tokens / 32));
          const chosen = (token: number): boolean => token < 3 || token >= tokens - 3 || token % step === 0;
          const width = shape.heads * headDim;
          const kept = out.map((value, i) => (chosen(Math.floor(i / width)) ? value : 0));
          close(
            kept,
            attendReference(cache, rows, qkv, { window, softcap, chosen }),
            ATTENDED[type],
            `${JSON.stringify({ ...shape, lengths: lengths.slice(0, 4) })} window ${window} softcap ${softcap}`,
          );
        }
      }
    });

    it('attention of picked tokens alone gives them the bits that they have among all, and leaves rows without picks alone', () => {
      const random = randomSource(17);
      for (const headDim of [64, 128]) {
        const shape: PagedShape = { heads: 8, kvHeads: 2, headDim, blockSize: 16, kvDtype: type, lengths: [700, 90, 40] };
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 0, start: 200, count: 500 },
          { slot: 2, start: 39, count: 1 },
          { slot: 1, start: 0, count: 90 },
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape));
        const attrs = { ...cache.attrs(rows), scale: 1 / Math.sqrt(headDim), window: 0 };
        const all = floats(runOp(setup, 'attention', attrs, cache.inputs(rows, qkv)), 'out');
        const width = shape.heads * headDim;
        const row = (out: Float32Array, token: number): Float32Array => out.subarray(token * width, (token + 1) * width);
        for (const picks of [[499], [500, 499], [590, 501], [3, 500, 90, 3, 340]]) {
          const inputs = { ...cache.inputs(rows, qkv), picks: Int32Array.from(picks) };
          const out = floats(runOp(setup, 'attention', { ...attrs, num_picks: picks.length }, inputs), 'out');
          for (const token of picks) assert.deepEqual(row(out, token), row(all, token), `token ${token} of ${picks}`);
          if (picks.some((token) => token > 500)) continue;
          assert.ok(out.subarray(501 * width).every((value) => value === 0));
        }
      }
    });
  });
}
