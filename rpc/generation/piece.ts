/** What a sequence of a streaming call gains, between the engine's deltas and the events of a sink. */
import type { LogprobSource } from './logprob-records.js';

export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  readonly function: { readonly name: string /** JSON text. */; readonly arguments: string };
}

/** What one sequence gained, in order. */
export interface Piece {
  /** Index of the choice. */
  readonly index: number;
  readonly text: string;
  /** Credit that sending it costs. */
  readonly tokens: number;
  readonly tokenIds: readonly number[];
  /** One entry per token, of an echoed prompt too; empty when not asked for. */
  readonly logprobs: readonly LogprobSource[];
  /** Reason, with the last piece of a choice. */
  readonly finish: string | null;
  readonly stopReason?: string | number;
  readonly toolCall?: ToolCall;
  /** Of the prompt, before the first token; only in streams that no answer follows. */
  readonly prompt?: PromptPiece;
}

/** What a stream tells of a prompt. */
export interface PromptPiece {
  readonly ids: Int32Array | null;
  readonly logprobs: readonly LogprobSource[];
}

/** All of these in one. */
function joined(prompts: readonly PromptPiece[]): PromptPiece {
  return { ids: prompts.find(({ ids }) => ids !== null)?.ids ?? null, logprobs: prompts.flatMap(({ logprobs }) => logprobs) };
}

/** One piece per choice, holding what all of its pieces held. */
export function mergePieces(pieces: readonly Piece[]): readonly Piece[] {
  const byIndex = new Map<number, Piece[]>();
  for (const piece of pieces) {
    const list = byIndex.get(piece.index);
    if (list === undefined) byIndex.set(piece.index, [piece]);
    else list.push(piece);
  }
  return [...byIndex.values()].map((list) => {
    const last = list.at(-1);
    if (last === undefined || list.length === 1) return list[0] as Piece; // proof: lists are made with one element
    const prompts = list.flatMap(({ prompt }) => (prompt === undefined ? [] : [prompt]));
    return {
      ...last,
      text: list.map((p) => p.text).join(''),
      tokens: list.reduce((sum, p) => sum + p.tokens, 0),
      tokenIds: list.flatMap((p) => p.tokenIds),
      logprobs: list.flatMap((p) => p.logprobs),
      ...(prompts.length === 0 ? {} : { prompt: joined(prompts) }),
    };
  });
}
