/** Routing and mixtures of experts on CUDA, in both 16-bit types, against float64 references. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { floats, ints, runOp, type Setup } from '../../helpers/native/op-table.js';
import {
  assertChoices,
  type Choice,
  type Experts,
  mixToken,
  type RouterInputs,
  type RouterRule,
} from '../../helpers/native/reference-experts.js';
import { randomFloats, randomSource, roundAll } from '../../helpers/native/reference-ops.js';
import { close, STORED, type Type } from './bounds.js';

/** What lies between the two products is rounded too. */
const MIXED = { f16: 8 * STORED.f16, bf16: 8 * STORED.bf16 } as const;

const ruleAttrs = (rule: RouterRule, rows: number): Record<string, number> => ({
  ...{ rows, experts: rule.experts, chosen: rule.chosen, scale: rule.scale ?? 1, groups: rule.groups ?? 1 },
  ...{ sigmoid: Number(rule.sigmoid ?? false), normalize: Number(rule.normalize ?? false) },
  ...{ chosen_groups: rule.chosenGroups ?? 1, best_two: Number(rule.bestTwo ?? false) },
});

/** The choices that an op made, which must be those of the rule. */
function choicesOf(result: ReturnType<typeof runOp>, rule: RouterRule, logits: Float32Array, extra: RouterInputs = {}): Choice[][] {
  const { chosen } = rule;
  const experts = ints(result, 'experts');
  const weights = floats(result, 'weights');
  const choices = Array.from({ length: experts.length / chosen }, (_, t) =>
    Array.from({ length: chosen }, (_unused, i) => ({ expert: experts[t * chosen + i]!, weight: weights[t * chosen + i]! })),
  );
  assertChoices(rule, choices, logits, 1e-5, extra);
  return choices;
}

describe('CUDA, route', () => {
  const setup: Setup = { isa: 'auto', backend: 'cuda' };
  const rules: RouterRule[] = [
    { experts: 8, chosen: 2, normalize: true },
    { experts: 128, chosen: 8, normalize: true },
    { experts: 6, chosen: 6 },
    { experts: 64, chosen: 6, scale: 16, groups: 8, chosenGroups: 3 },
    { experts: 256, chosen: 8, sigmoid: true, normalize: true, scale: 2.5, groups: 8, chosenGroups: 4, bestTwo: true },
  ];

  it('follows the rules of every family, ties to the lower number, and sorts by expert and token', () => {
    const random = randomSource(21);
    for (const rule of rules) {
      for (const [ties, rows] of [
        [false, 301],
        [true, 301],
        [true, 7],
      ] as const) {
        const { experts } = rule;
        const logits = randomFloats(random, rows * experts, 2).map((x) => (ties ? Math.round(x) : x));
        const correction = rule.sigmoid ? Float32Array.from({ length: experts }, (_, e) => (e % 5) / 4 - 3) : undefined;
        const positions = Int32Array.from({ length: rows }, (_, t) => (t % 50 === 49 || t === 3 ? -1 : t));
        const result = runOp(setup, 'route', ruleAttrs(rule, rows), { logits, positions, ...(correction && { correction }) });
        const routed = choicesOf(result, rule, logits, { correction, positions });
        const flat = routed.flat().map(({ expert }) => expert);
        const sorted = Array.from({ length: experts }, (_, e) => flat.flatMap((expert, pair) => (expert === e ? [pair] : []))).flat();
        assert.deepEqual([...ints(result, 'pairs').subarray(0, sorted.length)], sorted);
        assert.equal(ints(result, 'offsets')[experts], sorted.length);
        for (const [place, pair] of sorted.entries()) assert.equal(ints(result, 'places')[pair], place);
      }
    }
  });
});

/** Numbers of e2m1. */
const FLOAT4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/**
 * Rows of weights that quantizing leaves as they are: each block of 32 columns has a scale of its own, a power of two, and the largest
 * number that its codes have for it; int4 the smallest as well. No weight has more than 8 digits.
 */
function codedRows(random: () => number, dtype: 'fp4' | 'int4' | 'int8', rows: number, cols: number): Float32Array {
  const largest = { fp4: 6, int4: 7, int8: 127 }[dtype];
  const weights = new Float32Array(rows * cols);
  for (let row = 0; row < rows; ++row) {
    for (let first = 0; first < cols; first += 32) {
      const unit = 2 ** (Math.round(-Math.log2(largest * Math.sqrt(cols))) - Math.floor(random() * 4));
      for (let i = 0; i < Math.min(32, cols - first); ++i) {
        const sign = random() < 0.5 ? -1 : 1;
        const any = dtype === 'fp4' ? sign * FLOAT4[Math.floor(random() * 8)]! : Math.round((2 * random() - 1) * largest);
        weights[row * cols + first + i] = unit * (i === 0 ? largest : i === 1 && dtype === 'int4' ? -8 : any);
      }
    }
  }
  return weights;
}

interface FewWay {
  readonly experts: number;
  readonly chosen: number;
  readonly firstHeld: number;
  readonly held: number;
  readonly cols: number;
  readonly inner: number;
  /** Chosen by all tokens. */
  readonly favourite?: number;
  /** Chosen by the first token: experts that are not held. */
  readonly elsewhere?: readonly number[];
}

for (const type of ['bf16', 'f16'] as const satisfies readonly Type[]) {
  describe(`CUDA, mix_experts, ${type}`, () => {
    const setup: Setup = { isa: 'auto', backend: 'cuda', activation: type };

    it('is the weighted sum of the experts, for all sizes, gates, biases and pieces', () => {
      const random = randomSource(22);
      for (const [rows, experts, chosen, cols, inner, capacity] of [
        [1, 8, 2, 64, 96, 2],
        [5, 4, 4, 136, 176, 20],
        [70, 16, 3, 512, 24, 64],
        [300, 6, 2, 64, 64, 4096],
        [700, 3, 2, 136, 176, 640],
      ] as const) {
        for (const gate of ['silu', 'clamped_swiglu'] as const) {
          const weights = (count: number, fan: number) => roundAll(type, randomFloats(random, count, 1 / Math.sqrt(fan)));
          const biased = gate !== 'silu';
          const e: Experts = {
            ...{ held: experts, cols, inner, gate },
            gateUp: weights(experts * 2 * inner * cols, cols),
            down: weights(experts * cols * inner, inner),
            gateUpBias: biased ? randomFloats(random, experts * 2 * inner) : undefined,
            downBias: biased ? randomFloats(random, experts * cols) : undefined,
          };
          const x = roundAll(type, randomFloats(random, rows * cols, 2));
          const rule = { experts, chosen, normalize: true };
          const attrs = { ...ruleAttrs(rule, rows), cols, inner, dtype: type, gate, capacity };
          const logits = randomFloats(random, rows * experts);
          const result = runOp(setup, 'mix_experts', attrs, {
            ...{ logits, x, gate_up: e.gateUp, down: e.down },
            ...(e.gateUpBias && { gate_up_bias: e.gateUpBias }),
            ...(e.downBias && { down_bias: e.downBias }),
          });
          const want = new Float64Array(rows * cols);
          for (const [t, choices] of choicesOf(result, rule, logits).entries())
            want.set(mixToken(x.subarray(t * cols, (t + 1) * cols), choices, e), t * cols);
          close(floats(result, 'out'), want, MIXED[type], `${rows} of ${experts} x ${cols} x ${inner} ${gate}, pieces of ${capacity}`);
        }
      }
    });

    it('is that of experts kept as codes, where their matrices are what codes can say', () => {
      const random = randomSource(23);
      for (const dtype of ['fp4', 'int4', 'int8'] as const) {
        for (const [rows, experts, chosen, cols, inner, capacity] of [
          [1, 8, 2, 160, 96, 2],
          [5, 4, 4, 136, 176, 20],
          [70, 16, 3, 512, 32, 64],
          [300, 6, 2, 64, 64, 4096],
        ] as const) {
          for (const gate of ['silu', 'clamped_swiglu'] as const) {
            const biased = gate !== 'silu';
            const e: Experts = {
              ...{ held: experts, cols, inner, gate },
              gateUp: codedRows(random, dtype, experts * 2 * inner, cols),
              down: codedRows(random, dtype, experts * cols, inner),
              gateUpBias: biased ? randomFloats(random, experts * 2 * inner) : undefined,
              downBias: biased ? randomFloats(random, experts * cols) : undefined,
            };
            const x = roundAll(type, randomFloats(random, rows * cols, 1));
            const rule = { experts, chosen, normalize: true };
            const logits = randomFloats(random, rows * experts);
            const result = runOp(
              setup,
              'mix_experts',
              { ...ruleAttrs(rule, rows), cols, inner, dtype, gate, capacity },
              {
                ...{ logits, x, gate_up: e.gateUp, down: e.down },
                ...(e.gateUpBias && { gate_up_bias: e.gateUpBias }),
                ...(e.downBias && { down_bias: e.downBias }),
              },
            );
            const want = new Float64Array(rows * cols);
            for (const [t, choices] of choicesOf(result, rule, logits).entries())
              want.set(mixToken(x.subarray(t * cols, (t + 1) * cols), choices, e), t * cols);
            close(
              floats(result, 'out'),
              want,
              MIXED[type],
              `${dtype}, ${rows} of ${experts} x ${cols} x ${inner} ${gate}, pieces of ${capacity}`,
            );
          }
        }
      }
    });

    it('gives few tokens what it gives many, wherever their experts are, and adds it to what is there', () => {
      const random = randomSource(24);
      // All of a step's pairs at once: up to eight tokens are multiplied and summed by kernels of their own.
      const ways: readonly FewWay[] = [
        { experts: 8, chosen: 2, firstHeld: 0, held: 8, cols: 136, inner: 176 },
        { experts: 8, chosen: 3, firstHeld: 0, held: 8, cols: 72, inner: 48, favourite: 2 },
        { experts: 6, chosen: 2, firstHeld: 1, held: 3, cols: 200, inner: 80, elsewhere: [0, 5] },
      ];
      const cases = ways.flatMap((way) => [1, 2, 3, 8, 9].map((rows) => ({ ...way, rows })));
      // More tiles of a warp than are on their way at a time, in the first product and in the second.
      cases.push({ experts: 3, chosen: 2, firstHeld: 0, held: 3, rows: 2, cols: 3208, inner: 16 });
      cases.push({ experts: 24, chosen: 8, firstHeld: 0, held: 24, rows: 8, cols: 24, inner: 528 });
      for (const dtype of ['fp4', 'int4', 'int8'] as const) {
        for (const [number, { experts, chosen, firstHeld, held, cols, inner, rows, favourite, elsewhere }] of cases.entries()) {
          const [biased, adds] = [number % 2 === 0, number % 3 !== 0];
          const e: Experts = {
            ...{ held, cols, inner, gate: biased ? 'clamped_swiglu' : 'silu' },
            gateUp: codedRows(random, dtype, held * 2 * inner, cols),
            down: codedRows(random, dtype, held * cols, inner),
            gateUpBias: biased ? randomFloats(random, held * 2 * inner) : undefined,
            downBias: biased ? randomFloats(random, held * cols) : undefined,
          };
          const x = roundAll(type, randomFloats(random, rows * cols, 1));
          const before = roundAll(type, randomFloats(random, rows * cols, 1));
          const logits = randomFloats(random, rows * experts);
          if (favourite !== undefined) for (let t = 0; t < rows; ++t) logits[t * experts + favourite] = 9;
          for (const expert of elsewhere ?? []) logits[expert] = 9; // of the first token
          const positions = Int32Array.from({ length: rows }, (_, t) => (t === 1 ? -1 : t));
          const rule = { experts, chosen, normalize: true };
          const result = runOp(
            setup,
            'mix_experts',
            { ...ruleAttrs(rule, rows), first_held: firstHeld, held, cols, inner, dtype, gate: e.gate, capacity: rows * chosen },
            {
              ...{ logits, positions, x, gate_up: e.gateUp, down: e.down },
              ...(adds && { inout: before }),
              ...(e.gateUpBias && { gate_up_bias: e.gateUpBias }),
              ...(e.downBias && { down_bias: e.downBias }),
            },
          );
          const out = floats(result, 'out');
          const want = new Float64Array(rows * cols);
          for (const [t, choices] of choicesOf(result, rule, logits, { positions }).entries()) {
            const [from, to] = [t * cols, (t + 1) * cols];
            const kept = adds ? before.subarray(from, to) : new Float32Array(cols);
            const mixed = mixToken(x.subarray(from, to), choices, e, firstHeld);
            want.set(
              mixed.map((y, i) => y + kept[i]!),
              from,
            );
            const none = choices.every(({ expert }) => expert < firstHeld || expert >= firstHeld + held);
            assert.ok(none || !(t === 1 || (t === 0 && elsewhere !== undefined)), `token ${t} of ${rows} should have none here`);
            if (none) assert.deepEqual(out.subarray(from, to), kept, `token ${t} of ${rows} has no expert here`);
          }
          // Of no expert and nothing to add to, which was compared above, there is no size of an error.
          if (want.some((y) => y !== 0))
            close(
              out,
              want,
              MIXED[type],
              `${dtype}, ${rows} of ${held} of ${experts} x ${cols} x ${inner} ${e.gate}${adds ? ', added' : ''}`,
            );
        }
      }
    });
  });
}
