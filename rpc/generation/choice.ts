/**
 * What one sequence of a call has produced so far. Filled from the engine's deltas; keeps only what the final answer will need.
 */
import { int32Of } from '../../actors/messages/codec.js';
import type { Delta } from '../../actors/messages/requests.js';
import { RecordStore, type TextOf } from './logprob-records.js';
import { WordBlocks } from './word-blocks.js';

/** What to keep of each sequence. */
export interface Keep {
  readonly text: boolean;
  readonly tokenIds: boolean;
}

export class Choice {
  readonly promptIndex: number;
  /** Index of the sequence in its request. */
  readonly sequence: number;
  readonly tokenIds = new WordBlocks();
  readonly logprobs: RecordStore;
  numTokens = 0;
  finish: string | null = null;
  stopReason: string | number | undefined;
  cumulative = 0;
  /** performance.now() of the first and the last token. */
  firstMs = 0;
  lastMs = 0;
  readonly #keep: Keep;
  #parts: string[] = [];

  constructor(promptIndex: number, sequence: number, keep: Keep, textOf: TextOf) {
    this.logprobs = new RecordStore(textOf);
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
      if (this.#keep.tokenIds) this.tokenIds.add(delta.tokens);
    }
    if (this.#keep.text && delta.text !== '') this.#parts.push(delta.text);
    if (delta.logprobs !== undefined) this.logprobs.add(int32Of(delta.logprobs));
    if (delta.finish === undefined) return;
    this.finish = delta.finish;
    this.stopReason = delta.stopReason;
    this.cumulative = delta.cumulative ?? 0;
  }
}
