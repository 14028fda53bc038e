/**
 * Settings of the scheduler, all known once the executors have reported their capacity. Plain data, built by the scheduler actor
 * from Config and the executors' Ready; tests build it by hand.
 */
import type { DraftOptions } from './drafts.js';
import type { PreemptionMode } from './preemption.js';

export interface SchedulerOptions {
  /** Tokens in one KV block. */
  readonly blockSize: number;
  /** KV blocks of the pool. */
  readonly numBlocks: number;
  /** Blocks of the host for swapped KV; 0 = everything that is preempted is computed again. */
  readonly numSwapBlocks: number;
  /** What swapping a block out and in costs, in tokens of prefill; see preemption.ts. */
  readonly swapCostTokens: number;
  /** Slots of the executors: sequences that run at the same time (`scheduler.max_num_sequences`). */
  readonly maxSlots: number;
  /** Token budget of one step (`scheduler.max_num_batched_tokens`). */
  readonly maxBatchTokens: number;
  /**
   * The same of a step in which sequences decode, which wait for the prompts beside them (`scheduler.mixed_step_tokens`); up to twice as
   * many where much waits.
   */
  readonly mixedStepTokens: number;
  /** Prompt plus answer, at most, tokens. */
  readonly maxModelLen: number;
  /** Split prompts over steps and mix them with decoding; otherwise a step is prompts only or decodes only. */
  readonly enableChunkedPrefill: boolean;
  readonly enablePrefixCaching: boolean;
  /** Hold new prompts until the oldest has waited this many times the last prompt step; 0 = never. */
  readonly delayFactor: number;
  readonly policy: 'fcfs' | 'priority';
  readonly preemptionMode: PreemptionMode;
  /** Null: nothing is drafted. */
  readonly drafts: DraftOptions | null;
  /** Adapters that can run at the same time; 0 = none. */
  readonly adapterPlaces: number;
  /** Requests that may wait besides those that free slots will take at once. */
  readonly maxQueue: number;
  readonly queueTimeoutMs: number;
  /** Timelines of ended requests that are kept. */
  readonly keptTimelines: number;
  readonly eosTokenIds: readonly number[];
  /** Life of the engine group; stamped on plans, results of another epoch are ignored. */
  readonly epoch: number;
  /** Plans that may be unanswered: 2 overlaps planning with running, 1 is step by step. */
  readonly maxStepsInFlight: 1 | 2;
}

/**
 * Sequences that may run at once. Also bounded by the token budget, so that every running sequence gets at least its one token
 * in every step: decodes can then never starve, whatever the order.
 */
export function maxRunning(options: SchedulerOptions): number {
  return Math.min(options.maxSlots, options.maxBatchTokens);
}

/** What prompts get at least of a step's budget, however many sequences decode: a share of `mixedStepTokens`. */
export function leastPromptTokens(options: SchedulerOptions): number {
  return Math.ceil(options.mixedStepTokens / 4);
}

/** Blocks kept free when a request is first admitted, so that a fresh prompt does not at once push out a running sequence. */
export function watermarkBlocks(numBlocks: number): number {
  return Math.floor(numBlocks / 100);
}
