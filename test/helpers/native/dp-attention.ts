/**
 * Ranks that attend to sequences of their own and share experts, for tests: opened together, and driven in step by one thread. What each
 * of them does is a script, which says a plan for each step and reads its answer; a rank without one submits empty steps.
 */
import assert from 'node:assert/strict';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { type EngineOptions, loadAddon, type NativeEngine } from '../../../native/index.js';
import { answer, blockSets, engineOptions } from './native-engine.js';
import { buildPlan, type PlanSpec, type StepAnswer } from './plan.js';

const BLOCKS = 64;

/** Loaded, each with a KV cache of its own. The caller closes them. */
export function openApart(modelPath: string, numRanks: number, options: Partial<EngineOptions> = {}): NativeEngine[] {
  const addon = loadAddon();
  const shared = { worldSize: numRanks, dpAttention: true, group: addon.newRankGroup(), commTimeoutMs: 60_000 };
  const ranks: NativeEngine[] = [];
  try {
    for (let rank = 0; rank < numRanks; rank++)
      ranks.push(addon.createEngine({ ...engineOptions(modelPath, { threads: numRanks, ...options }), ...shared, rank }));
    for (const rank of ranks) {
      while (!rank.load(1 << 24).done);
      rank.allocateKv(BLOCKS, 0);
    }
  } catch (error) {
    closeAll(ranks);
    throw error;
  }
  return ranks;
}

export function closeAll(ranks: readonly NativeEngine[]): void {
  for (const rank of ranks) rank.close();
}

/** What one rank does, step by step. */
export interface Script {
  /** Of the next step; null: nothing, and it stays so once `over`. */
  next(): PlanSpec | null;
  take(answer: StepAnswer): void;
  readonly over: boolean;
}

export interface GreedyOptions {
  readonly prompt: readonly number[];
  readonly count: number;
  /** Empty steps before it begins. */
  readonly delay?: number;
  /** Tokens of the prompt in one step; all when absent. */
  readonly chunk?: number;
  readonly slot?: number;
  readonly firstBlock?: number;
}

/** Computes a prompt and then greedy tokens, a token a step; frees its slot at the end. */
export class Greedy implements Script {
  readonly tokens: number[] = [];
  readonly logprobs: number[] = [];
  /** Of all positions of the prompt that were computed, in order. */
  readonly logits: number[] = [];
  readonly #options: Required<GreedyOptions>;
  #waited = 0;
  #computed = 0;
  #freed = false;

  constructor({ delay = 0, chunk = 1 << 20, slot = 0, firstBlock = 0, ...rest }: GreedyOptions) {
    this.#options = { delay, chunk, slot, firstBlock, ...rest };
  }

  get over(): boolean {
    return this.#freed;
  }

  next(): PlanSpec | null {
    const { prompt, count, delay, chunk, slot, firstBlock } = this.#options;
    if (this.#freed || this.#waited++ < delay) return null;
    if (this.tokens.length === count) {
      this.#freed = true;
      return { freed: [slot] };
    }
    const start = this.#computed;
    const end = start < prompt.length ? Math.min(start + chunk, prompt.length) : start + 1;
    this.#computed = end;
    const begin = {
      newSlots: [{ slot, tokens: prompt, sampling: { topLogprobs: 0 } }],
      blockSets: blockSets(slot, firstBlock, Math.ceil((prompt.length + count) / 16)),
    };
    return {
      ...(start === 0 ? begin : {}),
      rows: [{ slot, start, count: end - start, flags: start < prompt.length ? ROW_FLAG.rawLogits : 0 }],
      samples: end >= prompt.length ? [{ row: 0, slot }] : [],
    };
  }

  take({ errorCode, samples, logits }: StepAnswer): void {
    assert.equal(errorCode, 0);
    for (const { values } of logits) for (const value of values) this.logits.push(value);
    for (const { token, logprob } of samples) {
      this.tokens.push(token);
      this.logprobs.push(logprob);
    }
  }
}

/** Runs the scripts of all ranks, undefined being an idle one, until they are over. @returns how many steps that took. */
export function runScripts(ranks: readonly NativeEngine[], scripts: readonly (Script | undefined)[]): number {
  let steps = 0;
  for (; scripts.some((script) => script?.over === false); steps++) {
    const plans = ranks.map((_, i) => scripts[i]?.next() ?? null);
    for (const [i, rank] of ranks.entries()) rank.submit(buildPlan(plans[i] ?? {}));
    for (const [i, rank] of ranks.entries()) {
      const given = answer(rank);
      if (plans[i] === null) assert.equal(given.errorCode, 0);
      else scripts[i]?.take(given);
    }
  }
  return steps;
}
