/** What a sequence of a streaming call gains, between the engine's deltas and the events of a sink. */
import type { CallPiece } from '../../actors/messages/requests.js';
import type { LogprobSource } from './logprob-records.js';

/** What one sequence gained, in order. */
export interface Piece {
  /** Index of the choice. */
  readonly index: number;
  readonly text: string;
  readonly reasoning?: string;
  /** Calls of tools; at most one of each. */
  readonly calls?: readonly CallPiece[];
  /** Credit that sending it costs. */
  readonly tokens: number;
  readonly tokenIds: readonly number[];
  /** One entry per token, of an echoed prompt too; empty when not asked for. */
  readonly logprobs: readonly LogprobSource[];
  /** Reason, with the last piece of a choice. */
  readonly finish: string | null;
  readonly stopReason?: string | number;
  /** It begins an event: what comes before it is told in others. */
  readonly apart?: true;
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

/** True when sending it tells nothing but tokens that are counted. */
export function isEmpty({ text, reasoning, calls, prompt, finish }: Piece): boolean {
  return text === '' && reasoning === undefined && calls === undefined && prompt === undefined && finish === null;
}

/** Characters of its texts. */
export function pieceChars({ text, reasoning, calls }: Piece): number {
  return text.length + (reasoning?.length ?? 0) + (calls?.reduce((sum, call) => sum + call.arguments.length, 0) ?? 0);
}

/** One piece per choice, holding what all of its pieces held. */
export function mergePieces(pieces: readonly Piece[]): readonly Piece[] {
  if (pieces.length === 1) return pieces; // as in almost every event
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
    const reasoning = list.map((p) => p.reasoning ?? '').join('');
    const calls = mergeCalls(list.flatMap((p) => p.calls ?? []));
    return {
      ...last,
      text: list.map((p) => p.text).join(''),
      ...(reasoning === '' ? {} : { reasoning }),
      ...(calls.length === 0 ? {} : { calls }),
      tokens: list.reduce((sum, p) => sum + p.tokens, 0),
      tokenIds: list.flatMap((p) => p.tokenIds),
      logprobs: list.flatMap((p) => p.logprobs),
      ...(prompts.length === 0 ? {} : { prompt: joined(prompts) }),
    };
  });
}

/** One piece per call, in order. */
function mergeCalls(pieces: readonly CallPiece[]): readonly CallPiece[] {
  const merged: CallPiece[] = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    if (last?.index === piece.index) merged[merged.length - 1] = { ...last, arguments: last.arguments + piece.arguments };
    else merged.push(piece);
  }
  return merged;
}
