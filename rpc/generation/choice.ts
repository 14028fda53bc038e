/**
 * What one sequence of a call has produced so far. Filled from the engine's deltas; keeps only what the final answer will need.
 */
import { int32Of } from '../../actors/messages/codec.js';
import type { CallPiece, Delta } from '../../actors/messages/requests.js';
import { RecordStore, type TextOf } from './logprob-records.js';
import { WordBlocks } from './word-blocks.js';

/** A call of a tool, put together. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model wrote it. */
  readonly arguments: string;
}

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
  /** Null: the model marks no reasoning. */
  reasoningTokens: number | null = null;
  /** Null: nothing was drafted. */
  drafts: { readonly accepted: number; readonly rejected: number } | null = null;
  /** performance.now() of the first and the last token. */
  firstMs = 0;
  lastMs = 0;
  readonly #keep: Keep;
  #parts: string[] = [];
  readonly #reasoning: string[] = [];
  readonly #calls: { readonly id: string; readonly name: string; readonly parts: string[] }[] = [];

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

  get reasoning(): string {
    return this.#reasoning.join('');
  }

  get calls(): readonly ToolCall[] {
    return this.#calls.map(({ id, name, parts }) => ({ id, name, arguments: parts.join('') }));
  }

  add(delta: Delta, nowMs: number): void {
    if (delta.tokens.length > 0) {
      if (this.numTokens === 0) this.firstMs = nowMs;
      this.lastMs = nowMs;
      this.numTokens += delta.tokens.length;
      if (this.#keep.tokenIds) this.tokenIds.add(delta.tokens);
    }
    if (this.#keep.text && delta.text !== '') this.#parts.push(delta.text);
    if (delta.reasoning !== undefined) this.#reasoning.push(delta.reasoning);
    if (delta.reasoningTokens !== undefined) this.reasoningTokens = (this.reasoningTokens ?? 0) + delta.reasoningTokens;
    if (delta.drafts !== undefined) {
      const { accepted, rejected } = this.drafts ?? { accepted: 0, rejected: 0 };
      this.drafts = { accepted: accepted + delta.drafts.accepted, rejected: rejected + delta.drafts.rejected };
    }
    for (const piece of delta.calls ?? []) this.#addCall(piece);
    if (delta.logprobs !== undefined) this.logprobs.add(int32Of(delta.logprobs));
    if (delta.finish === undefined) return;
    this.finish = delta.finish;
    this.stopReason = delta.stopReason;
    this.cumulative = delta.cumulative ?? 0;
  }

  #addCall({ index, id, name, arguments: text }: CallPiece): void {
    if (id !== undefined && name !== undefined) this.#calls[index] = { id, name, parts: [] };
    if (text !== '') this.#calls[index]?.parts.push(text);
  }
}
