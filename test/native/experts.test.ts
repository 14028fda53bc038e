/** Routing and mixtures of experts on every kernel set of this machine, against float64 references. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { floats, ints, isas, runOp } from '../helpers/native/op-table.js';
import {
  assertChoices,
  type Choice,
  type Experts,
  mixToken,
  type RouterInputs,
  type RouterRule,
} from '../helpers/native/reference-experts.js';
import { type FloatType, normalizedError, randomFloats, randomSource, roundAll } from '../helpers/native/reference-ops.js';

const F32_BOUND = 1e-10;
/** Of the weights of experts, relative. */
const WEIGHT_BOUND = 2e-6;

interface Routed {
  readonly choices: Choice[][];
  readonly places: Int32Array;
  readonly pairs: Int32Array;
  readonly offsets: Int32Array;
}

interface Extra extends RouterInputs {
  readonly firstHeld?: number;
  readonly held?: number;
}

function attributes(rule: RouterRule, rows: number, { firstHeld, held }: Extra): Record<string, number> {
  return {
    rows,
    experts: rule.experts,
    chosen: rule.chosen,
    sigmoid: Number(rule.sigmoid ?? false),
    normalize: Number(rule.normalize ?? false),
    scale: rule.scale ?? 1,
    groups: rule.groups ?? 1,
    chosen_groups: rule.chosenGroups ?? 1,
    best_two: Number(rule.bestTwo ?? false),
    first_held: firstHeld ?? 0,
    held: held ?? rule.experts,
  };
}

function inputs(logits: Float32Array, { correction, positions }: Extra): Record<string, Float32Array | Int32Array> {
  return { logits, ...(correction && { correction }), ...(positions && { positions }) };
}

function routed(result: ReturnType<typeof runOp>, chosen: number): Routed {
  const experts = ints(result, 'experts');
  const weights = floats(result, 'weights');
  const choices: Choice[][] = [];
  for (let at = 0; at < experts.length; at += chosen)
    choices.push(Array.from({ length: chosen }, (_, i) => ({ expert: experts[at + i]!, weight: weights[at + i]! })));
  return { choices, places: ints(result, 'places'), pairs: ints(result, 'pairs'), offsets: ints(result, 'offsets') };
}

function route(isa: string, rule: RouterRule, logits: Float32Array, extra: Extra = {}): Routed {
  const rows = logits.length / rule.experts;
  return routed(runOp({ isa }, 'route', attributes(rule, rows, extra), inputs(logits, extra)), rule.chosen);
}

/** What must hold of every routing: each pair held stands once, in the range of its expert, in the order of tokens. */
function assertSorted(r: Routed, chosen: number, held: number, firstHeld = 0): void {
  const experts = r.choices.flat().map(({ expert }) => expert - firstHeld);
  const mine = experts.filter((e) => e >= 0 && e < held).length;
  assert.equal(r.offsets[0], 0);
  assert.equal(r.offsets[held], mine);
  for (let e = 0; e < held; e++) {
    const pairs = [...r.pairs.subarray(r.offsets[e], r.offsets[e + 1])];
    assert.deepEqual(
      pairs,
      experts.flatMap((expert, pair) => (expert === e ? [pair] : [])),
      `expert ${e}`,
    );
  }
  for (const [pair, expert] of experts.entries()) {
    const place = r.places[pair]!;
    if (expert < 0 || expert >= held) assert.equal(place, -1);
    else assert.equal(r.pairs[place], pair);
  }
  for (const [t, choices] of r.choices.entries()) {
    const numbers = choices.map(({ expert }) => expert);
    if (numbers[0] === -1) continue;
    assert.equal(new Set(numbers).size, chosen, `token ${t} goes to ${numbers}`);
    assert.deepEqual(
      numbers,
      [...numbers].sort((a, b) => a - b),
    );
  }
}

function assertRoutes(isa: string, rule: RouterRule, logits: Float32Array, correction?: Float32Array): Routed {
  const got = route(isa, rule, logits, correction === undefined ? {} : { correction });
  assertSorted(got, rule.chosen, rule.experts);
  assertChoices(rule, got.choices, logits, WEIGHT_BOUND, { correction });
  return got;
}

describe('route', () => {
  const [isa = 'reference'] = isas;

  it('follows the rules of every family on random logits', () => {
    const random = randomSource(1);
    const rules: RouterRule[] = [
      { experts: 8, chosen: 2, normalize: true },
      { experts: 128, chosen: 8, normalize: true },
      { experts: 60, chosen: 4 },
      { experts: 64, chosen: 6, scale: 16, groups: 8, chosenGroups: 3 },
      { experts: 256, chosen: 8, sigmoid: true, normalize: true, scale: 2.5, groups: 8, chosenGroups: 4, bestTwo: true },
      { experts: 8, chosen: 8, normalize: true },
      { experts: 1, chosen: 1 },
    ];
    for (const rule of rules) {
      const logits = randomFloats(random, 37 * rule.experts, 2);
      assertRoutes(isa, rule, logits, rule.sigmoid ? randomFloats(random, rule.experts, 0.3) : undefined);
    }
  });

  it('gives ties to the lower number', () => {
    const even = new Float32Array(16).fill(0.25);
    const softmax = assertRoutes(isa, { experts: 16, chosen: 3, normalize: true }, even);
    assert.deepEqual(
      softmax.choices[0]!.map((c) => c.expert),
      [0, 1, 2],
    );
    const rule = { experts: 16, chosen: 3, sigmoid: true, groups: 4, chosenGroups: 2, bestTwo: true } as const;
    assert.deepEqual(
      assertRoutes(isa, rule, even, new Float32Array(16)).choices[0]!.map((c) => c.expert),
      [0, 1, 2],
    );
    const two = Float32Array.from([0, 3, 1, 3, 3, 1, 0, 3]);
    assert.deepEqual(
      assertRoutes(isa, { experts: 8, chosen: 3 }, two).choices[0]!.map((c) => c.expert),
      [1, 3, 4],
    );
  });

  it('never chooses from groups that were left out, not even when all that is left is negative', () => {
    // Group 1 is best by its two; the corrected scores of all experts are below 0, where a left-out group that counted 0 would win.
    const logits = Float32Array.from([-1, -1, -1, -1, 2, 1, -3, -4]);
    const correction = new Float32Array(8).fill(-5);
    const rule = { experts: 8, chosen: 3, sigmoid: true, normalize: true, groups: 2, chosenGroups: 1, bestTwo: true } as const;
    const got = assertRoutes(isa, rule, logits, correction);
    assert.deepEqual(
      got.choices[0]!.map((c) => c.expert),
      [4, 5, 6],
    );
  });

  it('weighs by the scores without the correction that chose', () => {
    const logits = Float32Array.from([0, 0, 0, 0]);
    const rule = { experts: 4, chosen: 1, sigmoid: true } as const;
    const got = route(isa, rule, logits, { correction: Float32Array.from([0, 0, 7, 0]) });
    assert.deepEqual(got.choices, [[{ expert: 2, weight: 0.5 }]]);
  });

  it('sends rows without a token nowhere, and holds only the experts of its share', () => {
    const random = randomSource(4);
    const logits = randomFloats(random, 9 * 12);
    const positions = Int32Array.from([5, 6, -1, 0, 1, 2, -1, -1, 3]);
    const rule = { experts: 12, chosen: 3 };
    const whole = route(isa, rule, logits);
    const got = route(isa, rule, logits, { positions, firstHeld: 4, held: 4 });
    assertSorted(got, 3, 4, 4);
    for (const [t, choices] of got.choices.entries()) {
      if (positions[t]! >= 0) assert.deepEqual(choices, whole.choices[t]);
      else assert.deepEqual(choices, Array(3).fill({ expert: -1, weight: 0 }));
    }
  });

  it('sends one token to different experts whatever its logits are', () => {
    for (const value of [Number.NaN, -Infinity, Infinity, 3e38, -3e38]) {
      for (const rule of [
        { experts: 6, chosen: 4 },
        { experts: 6, chosen: 4, sigmoid: true, groups: 3, chosenGroups: 2, bestTwo: true },
      ])
        assertSorted(route(isa, rule, Float32Array.from([value, 1, value, value, 0, value])), 4, 6);
    }
  });

  it('sorts any choice of experts by expert and token', () => {
    const cases = fc.record({ experts: fc.integer({ min: 1, max: 20 }), rows: fc.integer({ min: 1, max: 40 }), seed: fc.integer() });
    fc.assert(
      fc.property(cases, ({ experts, rows, seed }) => {
        const random = randomSource(seed);
        const logits = Float32Array.from({ length: rows * experts }, () => Math.round(4 * random()));
        assertRoutes(isa, { experts, chosen: 1 + ((seed >>> 3) % Math.min(4, experts)), normalize: seed % 2 === 0 }, logits);
      }),
      { numRuns: 100 },
    );
  });
});

interface Mixed {
  readonly out: Float32Array;
  readonly want: Float64Array;
}

interface MixOptions extends Extra {
  readonly dtype?: FloatType;
  readonly capacity?: number;
  readonly biased?: boolean;
  readonly threads?: number;
}

/** `shape.held` experts of random weights. */
function randomExperts(random: () => number, shape: Omit<Experts, 'gateUp' | 'down'>, dtype: FloatType, biased: boolean): Experts {
  const { held, cols, inner } = shape;
  const weights = (count: number, fan: number) => roundAll(dtype, randomFloats(random, count, 1 / Math.sqrt(fan)));
  return {
    ...shape,
    gateUp: weights(held * 2 * inner * cols, cols),
    down: weights(held * cols * inner, inner),
    gateUpBias: biased ? randomFloats(random, held * 2 * inner) : undefined,
    downBias: biased ? randomFloats(random, held * cols) : undefined,
  };
}

function mix(isa: string, rule: RouterRule, e: Experts, x: Float32Array, logits: Float32Array, o: MixOptions = {}): Mixed {
  const { dtype = 'f32', capacity = 1000, threads = 1 } = o;
  const { cols, inner, gate, gateUp, down, gateUpBias, downBias } = e;
  const rows = x.length / cols;
  const attrs = { ...attributes(rule, rows, o), cols, inner, dtype, gate, capacity };
  const given = { ...inputs(logits, o), x, gate_up: gateUp, down };
  const biases = { ...(gateUpBias && { gate_up_bias: gateUpBias }), ...(downBias && { down_bias: downBias }) };
  const result = runOp({ isa, threads }, 'mix_experts', attrs, { ...given, ...biases });
  const { choices: chosen } = routed(result, rule.chosen);
  assertChoices(rule, chosen, logits, WEIGHT_BOUND, o);
  const want = new Float64Array(x.length);
  for (const [t, choices] of chosen.entries()) want.set(mixToken(x.subarray(t * cols, (t + 1) * cols), choices, e, o.firstHeld), t * cols);
  return { out: floats(result, 'out'), want };
}

for (const isa of isas) {
  describe(`mix_experts, kernels ${isa}`, () => {
    it('is the weighted sum of the experts, of any sizes, gates, types and biases', () => {
      const random = randomSource(7);
      for (const [experts, chosen, cols, inner] of [
        [8, 2, 64, 96],
        [5, 3, 37, 21],
        [4, 4, 48, 112],
        [16, 1, 32, 8],
      ] as const) {
        for (const dtype of ['f32', 'f16', 'bf16'] as const) {
          for (const gate of ['silu', 'clamped_swiglu'] as const) {
            const e = randomExperts(random, { held: experts, cols, inner, gate }, dtype, gate !== 'silu');
            const x = randomFloats(random, 33 * cols, 2);
            const { out, want } = mix(isa, { experts, chosen, normalize: true }, e, x, randomFloats(random, 33 * experts), { dtype });
            const error = normalizedError(out, want);
            assert.ok(error <= F32_BOUND, `${experts} x ${cols} x ${inner} ${dtype} ${gate}: ${error}`);
          }
        }
      }
    });

    it('gives a token the same bits alone, in any batch, in any order and in any pieces', () => {
      const random = randomSource(8);
      const rule = { experts: 6, chosen: 2, normalize: true };
      const [cols, rows] = [40, 450];
      const e = randomExperts(random, { held: 6, cols, inner: 24, gate: 'silu' }, 'bf16', true);
      const x = randomFloats(random, rows * cols);
      const logits = randomFloats(random, rows * 6);
      const { out } = mix(isa, rule, e, x, logits, { dtype: 'bf16' });
      for (const capacity of [1, 7, 100])
        assert.deepEqual(mix(isa, rule, e, x, logits, { dtype: 'bf16', capacity, threads: 2 }).out, out, `pieces of ${capacity}`);
      const order = Array.from({ length: rows }, (_, t) => (t * 7) % rows);
      const permuted = (data: Float32Array, width: number) =>
        Float32Array.from(order.flatMap((t) => [...data.subarray(t * width, (t + 1) * width)]));
      const other = mix(isa, rule, e, permuted(x, cols), permuted(logits, 6), { dtype: 'bf16' }).out;
      assert.deepEqual(other, permuted(out, cols));
      for (const t of [0, 211, 449]) {
        const one = mix(isa, rule, e, x.slice(t * cols, (t + 1) * cols), logits.slice(t * 6, (t + 1) * 6), { dtype: 'bf16' }).out;
        assert.deepEqual(one, out.slice(t * cols, (t + 1) * cols));
      }
    });

    it('bears one expert that takes all tokens, and experts that get none', () => {
      const random = randomSource(9);
      const e = randomExperts(random, { held: 8, cols: 32, inner: 16, gate: 'silu' }, 'f32', false);
      const x = randomFloats(random, 400 * 32);
      const logits = Float32Array.from({ length: 400 * 8 }, (_, i) => (i % 8 === 5 ? 4 : i % 8));
      for (const chosen of [1, 2]) {
        const { out, want } = mix(isa, { experts: 8, chosen }, e, x, logits);
        assert.ok(normalizedError(out, want) <= F32_BOUND);
      }
    });

    it('leaves rows without a token zero, and sums over ranks that share the experts to the whole', () => {
      const random = randomSource(10);
      const [experts, cols, inner] = [8, 24, 16];
      const rule = { experts, chosen: 3, normalize: true };
      const all = randomExperts(random, { held: experts, cols, inner, gate: 'silu' }, 'f32', true);
      const x = randomFloats(random, 5 * cols);
      const logits = randomFloats(random, 5 * experts);
      const positions = Int32Array.from([0, 1, -1, 2, -1]);
      const whole = mix(isa, rule, all, x, logits, { positions });
      assert.deepEqual([...whole.out.subarray(2 * cols, 3 * cols)], Array(cols).fill(0));
      const half = (firstHeld: number) => {
        const cut = (data: Float32Array | undefined) =>
          data?.slice((data.length / experts) * firstHeld, (data.length / experts) * (firstHeld + 4));
        const part = {
          ...all,
          held: 4,
          gateUp: cut(all.gateUp)!,
          down: cut(all.down)!,
          gateUpBias: cut(all.gateUpBias),
          downBias: cut(all.downBias),
        };
        return mix(isa, rule, part, x, logits, { positions, firstHeld, held: 4 });
      };
      const [low, high] = [half(0), half(4)];
      for (const { out, want } of [low, high, whole]) assert.ok(normalizedError(out, want) <= F32_BOUND);
      const sum = low.out.map((value, i) => value + high.out[i]!);
      assert.ok(normalizedError(sum, whole.want) <= F32_BOUND);
    });
  });
}
