/**
 * What the last steps held: prompt tokens, decoded tokens, time on the device. A ring in the scheduler thread; a step costs five writes,
 * and somebody who looks gets the steps that they have not seen yet.
 */
import type { RecentSteps } from '../../messages/calls.js';

/** Some seconds of the fastest engine; who looks once a second misses none. */
const CAPACITY = 1024;

export class StepRing {
  private readonly atMs = new Float64Array(CAPACITY);
  private readonly execUs = new Float64Array(CAPACITY);
  private readonly promptTokens = new Int32Array(CAPACITY);
  private readonly decodeTokens = new Int32Array(CAPACITY);
  private readonly running = new Int32Array(CAPACITY);
  /** Steps so far. */
  private count = 0;

  add(step: StepFacts): void {
    const at = this.count++ % CAPACITY;
    this.atMs[at] = step.nowMs;
    this.execUs[at] = step.execUs;
    this.promptTokens[at] = step.promptTokens;
    this.decodeTokens[at] = step.numTokens - step.promptTokens;
    this.running[at] = step.running;
  }

  /** Steps from number `since` on, as far as they are still there; none when `since` is ahead of us. */
  since(since: number): RecentSteps {
    const first = Math.max(since, this.count - CAPACITY, 0);
    const places = Array.from({ length: Math.max(0, this.count - first) }, (_, i) => (first + i) % CAPACITY);
    const column = (values: Float64Array | Int32Array): number[] => places.map((at) => values[at]!); // at < CAPACITY
    return {
      next: [this.count],
      atMs: column(this.atMs),
      execUs: column(this.execUs),
      promptTokens: column(this.promptTokens),
      decodeTokens: column(this.decodeTokens),
      running: column(this.running),
    };
  }
}

export interface StepFacts {
  readonly nowMs: number;
  readonly execUs: number;
  readonly numTokens: number;
  /** Of them, those of prompts, and of tokens that are computed again. */
  readonly promptTokens: number;
  /** Requests that run. */
  readonly running: number;
}
