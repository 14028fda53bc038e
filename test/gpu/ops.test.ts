/**
 * The op table on CUDA in both 16-bit types: ops on activations, cache writes and attention against float64 references, over batches of 1
 * to 256 rows, contexts of 1 to 8193 tokens, all head sizes and 1 to 16 query heads a key head; sampling, scoring and the plan against the
 * CPU backend, which has tests of its own against float64. INFERD_TEST_QUICK=1 leaves the large sizes out, for compute-sanitizer.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, ints, PagedCache, type PagedShape, runOp, type Setup, type StepRow } from '../helpers/native/op-table.js';
import {
  attendVectors,
  capped,
  gatedMul,
  gates,
  linear,
  normalizedError,
  randomFloats,
  randomInt,
  randomSource,
  rmsNorm,
  rotateHead,
  roundAll,
} from '../helpers/native/reference-ops.js';
import { plainParams } from '../helpers/native/reference-sampler.js';
import { type SampleCase, sampleAll } from '../helpers/native/sample-op.js';

type Type = 'f16' | 'bf16';
/** Squared relative error of a result stored in 16 bits. */
const STORED = { f16: 2 ** -22, bf16: 2 ** -16 } as const;
/** Probabilities are rounded to 16 bits too before they meet the values. */
const ATTENDED = { f16: 4 * STORED.f16, bf16: 4 * STORED.bf16 } as const;
/** float32 sums of products of 16-bit numbers. */
const SUMMED = 1e-10;
/** silu(gate) * up, whose factors may have been rounded to 16 bits: a gate of size g moves silu by up to 1.1 g times the rounding. */
const GATED = { f16: 8 * STORED.f16, bf16: 8 * STORED.bf16 } as const;
/** Angles are float32 on CUDA, exact to 1e-4 radians at the positions tested. */
const ROTATED = { f16: 2 * STORED.f16 + 1e-8, bf16: 2 * STORED.bf16 } as const;

/** At positions of thousands a float32 angle is exact to 2^-11 radians. */
const ROTATED_FAR = { f16: ROTATED.f16 + 2 ** -22, bf16: ROTATED.bf16 } as const;

function close(got: Float32Array, want: Float64Array, bound: number, what: string): void {
  const error = normalizedError(got, want);
  assert.ok(error <= bound, `${what}: normalized error ${error} is above ${bound}`);
}

const rowWidth = (s: PagedShape): number => (s.heads + 2 * s.kvHeads) * s.headDim;
const tokensOf = (rows: readonly StepRow[]): number => rows.reduce((sum, r) => sum + r.count, 0);

const quick = process.env['INFERD_TEST_QUICK'] === '1';
const everyToken = (): boolean => true;

/** Of the tokens that `chosen` says yes to; the others stay 0. */
function attendReference(
  cache: PagedCache,
  rows: readonly StepRow[],
  qkv: Float32Array,
  {
    window,
    softcap = 0,
    chosen = everyToken,
  }: { readonly window: number; readonly softcap?: number; readonly chosen?: (token: number) => boolean },
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
        out.set(attendVectors(qkv.subarray(start, start + headDim), row.start + i, read, options), (token * heads + h) * headDim);
      }
    }
  }
  return out;
}

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
        assert.deepEqual(floats(runOp(setup, 'gather_rows', { rows: 9, cols, count: 5 }, { x: table, ids }), 'out'), want);
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

    it('rotation of part of a head, with a factor, at positions up to 8192, for 256 sequences', () => {
      const random = randomSource(16);
      const batch = quick ? 20 : 256;
      for (const [headDim, rotaryDim, heads, kvHeads] of [
        [64, 32, 16, 1],
        [96, 96, 3, 3],
        [128, 64, 10, 2],
        [256, 128, 1, 1],
      ] as const) {
        const lengths = Array.from({ length: batch }, (_, i) => 1 + ((i * 131) % 64));
        lengths[batch - 1] = 8193;
        const shape: PagedShape = { heads, kvHeads, headDim, blockSize: 16, kvDtype: type, lengths };
        const cache = new PagedCache(shape, random);
        const rows = lengths.map((length, slot): StepRow => ({ slot, start: length - 1, count: 1 }));
        const qkv = rounded(random, batch * rowWidth(shape), 2);
        const invFreq = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => 500_000 ** (-i / (rotaryDim / 2)));
        const attrs = { ...cache.attrs(rows), rotary_dim: rotaryDim, factor: 1.25, norm_eps: 1e-6 };
        const result = runOp(setup, 'rope_and_cache', attrs, { ...cache.inputs(rows, qkv), inv_freq: invFreq });
        const spec = { invFreq, factor: 1.25, rotaryDim, norm: null, normEps: 0 };
        const [gotQ, wantQ, gotK, wantK]: [number[], number[], number[], number[]] = [[], [], [], []];
        for (const [token, row] of rows.entries()) {
          const base = token * rowWidth(shape);
          for (let h = 0; h < heads + kvHeads; h++) {
            const at = base + h * headDim;
            const to = h < heads ? at : cache.at(row.slot, h - heads, row.start, 0);
            const from = h < heads ? floats(result, 'qkv') : floats(result, 'k');
            (h < heads ? gotQ : gotK).push(...from.subarray(to, to + headDim));
            (h < heads ? wantQ : wantK).push(...rotateHead(qkv.subarray(at, at + headDim), row.start, spec));
          }
        }
        close(Float32Array.from(gotQ), Float64Array.from(wantQ), ROTATED_FAR[type], `q, head_dim ${headDim}`);
        close(Float32Array.from(gotK), Float64Array.from(wantK), ROTATED_FAR[type], `k, head_dim ${headDim}`);
      }
    });

    it('rotation and cache writes match, with and without norms of the heads', () => {
      const random = randomSource(12);
      for (const headDim of [64, 96, 128, 256]) {
        const shape: PagedShape = { heads: 4, kvHeads: 2, headDim, blockSize: 16, kvDtype: type, lengths: [90, 40] };
        const cache = new PagedCache(shape, random);
        const rows: StepRow[] = [
          { slot: 1, start: 33, count: 1 },
          { slot: 0, start: 20, count: 40 },
        ];
        const qkv = rounded(random, tokensOf(rows) * rowWidth(shape), 2);
        const invFreq = Float32Array.from({ length: headDim / 2 }, (_, i) => 10000 ** (-i / (headDim / 2)));
        for (const norm of [null, randomFloats(random, headDim, 2)]) {
          const attrs = { ...cache.attrs(rows), rotary_dim: headDim, factor: 1, norm_eps: 1e-6 };
          const inputs = { ...cache.inputs(rows, qkv), inv_freq: invFreq, ...(norm === null ? {} : { q_norm: norm, k_norm: norm }) };
          const result = runOp(setup, 'rope_and_cache', attrs, inputs);
          const spec = { invFreq, factor: 1, rotaryDim: headDim, norm, normEps: 1e-6 };
          const prepared = (at: number, position: number): Float64Array => rotateHead(qkv.subarray(at, at + headDim), position, spec);
          let token = 0;
          for (const row of rows) {
            for (let i = 0; i < row.count; i++, token++) {
              const base = token * rowWidth(shape);
              for (let h = 0; h < shape.heads; h++) {
                const at = base + h * headDim;
                close(floats(result, 'qkv').subarray(at, at + headDim), prepared(at, row.start + i), ROTATED[type], `q of token ${token}`);
              }
              for (let h = 0; h < shape.kvHeads; h++) {
                const k = base + (shape.heads + h) * headDim;
                const to = cache.at(row.slot, h, row.start + i, 0);
                close(floats(result, 'k').subarray(to, to + headDim), prepared(k, row.start + i), ROTATED[type], `k of token ${token}`);
                const v = k + shape.kvHeads * headDim;
                assert.deepEqual(floats(result, 'v').subarray(to, to + headDim), qkv.subarray(v, v + headDim));
              }
            }
          }
        }
      }
    });

    it('block copies are done in order', () => {
      const random = randomSource(13);
      const attrs = { num_blocks: 6, kv_heads: 2, block_size: 16, head_dim: 64, kv_dtype: type, count: 3 };
      const width = 2 * 16 * 64;
      const inputs = { k: rounded(random, 6 * width), v: rounded(random, 6 * width), pairs: Int32Array.from([0, 3, 3, 5, 1, 0]) };
      const got = runOp(setup, 'copy_blocks', attrs, inputs);
      const want = runOp({ isa: 'reference' }, 'copy_blocks', attrs, inputs);
      for (const name of ['k', 'v']) assert.deepEqual(floats(got, name), floats(want, name));
    });

    it('swapped blocks come back whole, whatever went first', () => {
      const random = randomSource(14);
      const numBlocks = 40;
      for (const [kv_heads, block_size, head_dim] of [
        [1, 1, 64],
        [8, 16, 128],
      ] as const) {
        const count = 17;
        const width = kv_heads * block_size * head_dim;
        const outs = Int32Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? (i * 7) % numBlocks : (i * 5) % count));
        const hosts = outs.filter((_, i) => i % 2 === 1);
        const ins = Int32Array.from({ length: 2 * count }, (_, i) => (i % 2 === 0 ? (hosts[i / 2] ?? 0) : (i * 3) % numBlocks));
        const inputs = { k: rounded(random, numBlocks * width), v: rounded(random, numBlocks * width), outs, ins };
        for (const urgent of [0, 5, count]) {
          const attrs = { num_blocks: numBlocks, kv_heads, block_size, head_dim, kv_dtype: type, count, swap_blocks: count, urgent };
          const got = runOp(setup, 'swap_blocks', attrs, inputs);
          const want = runOp({ isa: 'reference' }, 'swap_blocks', attrs, inputs);
          for (const name of ['k', 'v']) assert.deepEqual(floats(got, name), floats(want, name));
        }
      }
    });
  });
}

describe('CUDA, logits', () => {
  const setup: Setup = { isa: 'auto', backend: 'cuda' };
  const cpu: Setup = { isa: 'reference' };

  it('greedy, penalized and drawn tokens are those of the CPU backend', () => {
    const random = randomSource(21);
    for (const [vocab, count] of quick
      ? ([
          [100, 8],
          [4096, 8],
        ] as const)
      : ([
          [100, 24],
          [4096, 256],
          [50_000, 24],
          [151_936, 3],
        ] as const)) {
      const cases: SampleCase[] = Array.from({ length: count }, (_, i) => ({
        logits: randomFloats(random, vocab, 6),
        params: {
          ...plainParams,
          temperature: i % 3 === 0 ? 0 : 0.7 + 0.1 * i,
          ...(i % 4 === 1 ? { topK: 5 } : {}),
          ...(i % 4 === 2 ? { topP: 0.8 } : {}),
          ...(i % 5 === 1 ? { minP: 0.05 } : {}),
          ...(i % 5 === 2 ? { repetition: 1.3, frequency: 0.2, presence: 0.1 } : {}),
          prompt: [1, 2, 3, 4],
          output: [5, 6, 6, 7],
        },
        seed: [i, 7],
        topLogprobs: i % 2 === 0 ? 5 : -1,
      }));
      const got = sampleAll(setup, cases);
      const want = sampleAll(cpu, cases);
      const same = got.filter((s, i) => s.token === want[i]?.token).length;
      // A draw may land within rounding of the boundary between two tokens.
      assert.ok(same >= cases.length - 1, `${same} of ${cases.length} tokens agree at a vocabulary of ${vocab}`);
    }
  });

  it('scores are those of the CPU backend', () => {
    const random = randomSource(22);
    for (const vocab of [100, 4096, 130_000]) {
      const inputs = { logits: randomFloats(random, 3 * vocab, 6), targets: Int32Array.from([0, vocab - 1, 17]) };
      const attrs = { rows: 3, vocab, top: 5 };
      const [got, want] = [runOp(setup, 'score', attrs, inputs), runOp(cpu, 'score', attrs, inputs)];
      assert.deepEqual(ints(got, 'ranks'), ints(want, 'ranks'));
      assert.deepEqual(ints(got, 'top_ids').subarray(0, 5), ints(want, 'top_ids').subarray(0, 5));
      close(floats(got, 'logprobs'), Float64Array.from(floats(want, 'logprobs')), 1e-10, 'logprobs');
    }
  });
});
