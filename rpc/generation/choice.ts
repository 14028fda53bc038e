/**
 * What one sequence of a call has produced so far. Filled from the engine's deltas; keeps only what the final answer will need.
 */
import type { Delta, LogprobText } from '../../actors/messages/requests.js';

/** What to keep of each sequence. */
export interface Keep {
  readonly text: boolean;
  readonly tokenIds: boolean;
}

export class Choice {
  readonly promptIndex: number;
  /** Index of the sequence in its request. */
  readonly sequence: number;
  readonly tokenIds: number[] = [];
  readonly logprobs: LogprobText[] = [];
  numTokens = 0;
  finish: string | null = null;
  stopReason: string | number | undefined;
  cumulative = 0;
  /** performance.now() of the first and the last token. */
  firstMs = 0;
  lastMs = 0;
  readonly #keep: Keep;
  #parts: string[] = [];

  constructor(promptIndex: number, sequence: number, keep: Keep) {
    this.promptIndex = promptIndex;
    this.sequence = sequence;
    this.#keep = keep;
  }

  get text(): string {
    if (this.#parts.length > 1) this.#parts = [this.#parts.join('')];
    return this.#parts[0] ?? '';
  }

  add(delta: Delta, nowMs: number): void {
    if (delta.tokens.length > 0) {
      if (this.numTokens === 0) this.firstMs = nowMs;
      this.lastMs = nowMs;
      this.numTokens += delta.tokens.length;
      if (this.#keep.tokenIds) for (const id of delta.tokens) this.tokenIds.push(id);
    }
    if (this.#keep.text && delta.text !== '') this.#parts.push(delta.text);
    if (delta.logprobs !== undefined) for (const entry of delta.logprobs) this.logprobs.push(entry);
    if (delta.finish === undefined) return;
    this.finish = delta.finish;
    this.stopReason = delta.stopReason;
    this.cumulative = delta.cumulative ?? 0;
  }
}
