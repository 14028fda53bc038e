/** A mixture of experts in float64, written for reading: what the op tests compare backends with. Rules: native/core/experts.h. */
import assert from 'node:assert/strict';
import { type Gate, gatedMul, linear } from './reference-ops.js';

export interface RouterRule {
  readonly experts: number;
  readonly chosen: number;
  readonly sigmoid?: boolean;
  readonly normalize?: boolean;
  readonly scale?: number;
  readonly groups?: number;
  readonly chosenGroups?: number;
  readonly bestTwo?: boolean;
}

export interface Choice {
  readonly expert: number;
  readonly weight: number;
}

/** The `count` best of `among`, ties to the lower number. */
function best(among: readonly number[], values: ArrayLike<number>, count: number): number[] {
  const value = (i: number): number => (Number.isNaN(values[i]) ? -Number.MAX_VALUE : Math.max(values[i]!, -Number.MAX_VALUE));
  return [...among].sort((a, b) => value(b) - value(a) || a - b).slice(0, count);
}

/** The experts of one token in the order of their numbers, with their weights. */
export function routeToken(rule: RouterRule, logits: Float32Array, correction: Float32Array | null): Choice[] {
  const { experts, chosen, sigmoid = false, normalize = false, scale = 1, groups = 1, chosenGroups = 1, bestTwo = false } = rule;
  const all = Array.from({ length: experts }, (_, e) => e);
  const top = Math.max(...logits);
  const total = all.reduce((sum, e) => sum + Math.exp(logits[e]! - top), 0);
  const scores = all.map((e) => (sigmoid ? 1 / (1 + Math.exp(-logits[e]!)) : Math.exp(logits[e]! - top) / total));
  const choice = all.map((e) => (correction === null && !sigmoid ? logits[e]! : scores[e]! + (correction?.[e] ?? 0)));
  const size = experts / groups;
  const groupScores = Array.from({ length: groups }, (_, g) => {
    const own = best(all.slice(g * size, (g + 1) * size), choice, bestTwo ? 2 : 1);
    return own.reduce((sum, e) => sum + choice[e]!, 0);
  });
  const kept = best(
    groupScores.map((_, g) => g),
    groupScores,
    chosenGroups,
  );
  const taken = best(
    all.filter((e) => kept.includes(Math.floor(e / size))),
    choice,
    chosen,
  ).sort((a, b) => a - b);
  const sum = normalize ? taken.reduce((s, e) => s + scores[e]!, 0) : 1;
  return taken.map((expert) => ({ expert, weight: (scores[expert]! / sum) * scale }));
}

/** What a router has besides its logits. */
export interface RouterInputs {
  readonly correction?: Float32Array | undefined;
  readonly positions?: Int32Array | undefined;
}

/**
 * Fails where an op chose other experts than the rule does, or weighs them otherwise; rows without a token have none. What is compared with
 * a mixture of the op's own choices needs it: of no choices every mixture is right.
 */
export function assertChoices(
  rule: RouterRule,
  got: readonly (readonly Choice[])[],
  logits: Float32Array,
  tolerance: number,
  { correction, positions }: RouterInputs = {},
): void {
  const none = Array<Choice>(rule.chosen).fill({ expert: -1, weight: 0 });
  assert.equal(got.length, logits.length / rule.experts);
  for (const [t, choices] of got.entries()) {
    const row = logits.subarray(t * rule.experts, (t + 1) * rule.experts);
    const want = (positions?.[t] ?? 0) < 0 ? none : routeToken(rule, row, correction ?? null);
    assert.deepEqual(
      choices.map((c) => c.expert),
      want.map((c) => c.expert),
      `token ${t}`,
    );
    for (const [i, { weight }] of choices.entries())
      assert.ok(Math.abs(weight - want[i]!.weight) <= tolerance * Math.abs(want[i]!.weight), `token ${t}: ${weight}, ${want[i]!.weight}`);
  }
}

export interface Experts {
  readonly held: number;
  readonly cols: number;
  readonly inner: number;
  readonly gateUp: Float32Array;
  readonly down: Float32Array;
  readonly gateUpBias?: Float32Array | undefined;
  readonly downBias?: Float32Array | undefined;
  readonly gate: Gate;
}

/** The weighted sum over the experts of a token that are held, the first of which has the number `firstHeld`. */
export function mixToken(x: Float32Array, choices: readonly Choice[], e: Experts, firstHeld = 0): Float64Array {
  const { held, cols, inner, gate } = e;
  const out = new Float64Array(cols);
  for (const { expert, weight } of choices) {
    const at = expert - firstHeld;
    if (at < 0 || at >= held) continue;
    const part = (data: Float32Array | undefined, size: number) => data?.subarray(at * size, (at + 1) * size) ?? null;
    const gateUp = part(e.gateUp, 2 * inner * cols) as Float32Array;
    const products = linear(x, gateUp, part(e.gateUpBias, 2 * inner), cols);
    const y = linear(gatedMul(products, inner, gate), part(e.down, cols * inner) as Float32Array, part(e.downBias, cols), inner);
    for (let i = 0; i < cols; i++) out[i]! += weight * y[i]!;
  }
  return out;
}
