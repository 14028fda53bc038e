/**
 * Counters an actor publishes without being asked: float64 cells in shared memory, one writer (the actor), any reader. Readers may see
 * a value of the turn before, never a torn one (an aligned float64 store is one store). Used for health, watchdogs and tests.
 */

/** Cells of the scheduler's block. Times are milliseconds of nowMs(). */
export const SCHEDULER_COUNTER = {
  /** When the loop last turned. */
  heartbeatMs: 0,
  /** Steps whose result was applied. */
  steps: 1,
  running: 2,
  waiting: 3,
  /** When the oldest step in flight was published; 0 = none. */
  inFlightSinceMs: 4,
  /** Exponential mean of the time between publishing a plan and its result. */
  meanStepMs: 5,
  cells: 8,
} as const;

/** Cells of a tokenizer's block. */
export const TOKENIZER_COUNTER = {
  /** When it began what it is working on, or last got on with it; 0 = idle. Of several things the oldest. */
  busySinceMs: 0,
  /** Requests it holds. */
  size: 1,
  /** When its event loop last turned, about; 0 before it is ready. */
  heartbeatMs: 2,
  /** Sizes of all prompts and ids that it was handed and has let go of since, added up (actors/client-load.ts). */
  letGo: 3,
  cells: 8,
} as const;

/** A step that takes this many times as long as the mean of those before it is not merely a large one. */
const LONG_STEP = 20;

/** How long the oldest step may be in flight, ms, before its executors count as hanging. */
export function stepLimitMs(counters: Counters | null, hangTimeoutMs: number): number {
  return Math.max(hangTimeoutMs, LONG_STEP * (counters?.[SCHEDULER_COUNTER.meanStepMs] ?? 0));
}

export type Counters = Float64Array<SharedArrayBuffer>;

export function createCounters(cells: number): Counters {
  return new Float64Array(new SharedArrayBuffer(cells * 8));
}
