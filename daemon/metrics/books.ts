/**
 * The books of all requests: counters, and a histogram for each line of the table that is told of a first token, a gap between tokens, the
 * end of a sequence or the end of a prompt. Main thread. A token costs an addition and a search among twenty edges; all else is done once a
 * request.
 */
import { Histogram } from '../../actors/runtime/histogram.js';
import { EDGES, type Observed, perPrompt, perSequence } from './observed.js';
import type { PromptRun, SequenceRun } from './runs.js';

export type Ending = 'stop' | 'length' | 'abort' | 'error';

export class Books {
  /** Each prompt once, when its first token came. */
  promptTokens = 0;
  /** Of them, from the prefix cache. */
  cachedTokens = 0;
  /** Prompt tokens that were looked up in the prefix cache. */
  queriedTokens = 0;
  /** Given to clients or dropped by best_of. */
  generatedTokens = 0;
  /** Sequences by how they ended. */
  readonly endings: Record<Ending, number> = { stop: 0, length: 0, abort: 0, error: 0 };
  /** Requests that were not taken though they were right, by `error.code`. */
  readonly rejections = new Map<string, number>();
  /** Seconds. */
  readonly firstToken = new Histogram(EDGES.firstToken);
  /** Seconds between two tokens of a sequence; those that come together count as one. */
  readonly gaps = new Histogram(EDGES.token);
  readonly #perPrompt: readonly Kept<PromptRun>[];
  readonly #perSequence: readonly Kept<SequenceRun>[];

  /** `maxModelLen`: the largest edge of lengths. */
  constructor(maxModelLen: number) {
    this.#perPrompt = perPrompt.map((observed) => new Kept(observed, maxModelLen));
    this.#perSequence = perSequence.map((observed) => new Kept(observed, maxModelLen));
  }

  /** Those of the table's observed lines. */
  get histograms(): readonly { readonly observed: Observed<never>; readonly histogram: Histogram }[] {
    return [...this.#perPrompt, ...this.#perSequence];
  }

  promptComputed({ promptTokens, cachedTokens, looksUp }: PromptRun): void {
    this.promptTokens += promptTokens;
    this.cachedTokens += cachedTokens;
    if (looksUp) this.queriedTokens += promptTokens;
  }

  promptEnded(run: PromptRun): void {
    for (const kept of this.#perPrompt) kept.add(run);
  }

  sequenceEnded(run: SequenceRun, ending: Ending): void {
    this.endings[ending]++;
    for (const kept of this.#perSequence) kept.add(run);
  }

  rejected(reason: string): void {
    this.rejections.set(reason, (this.rejections.get(reason) ?? 0) + 1);
  }
}

class Kept<Run> {
  readonly observed: Observed<Run>;
  readonly histogram: Histogram;

  constructor(observed: Observed<Run>, maxModelLen: number) {
    this.observed = observed;
    this.histogram = new Histogram(observed.edges(maxModelLen));
  }

  add(run: Run): void {
    const value = this.observed.value(run);
    if (value !== null) this.histogram.observe(value);
  }
}
