/** What the builders of chat and text answers have in common. */
import { int32Of } from '../../actors/messages/codec.js';
import type { Delta } from '../../actors/messages/requests.js';
import { RecordView, type TextOf } from './logprob-records.js';
import type { Piece } from './piece.js';

/** What the answer to a call is to say. */
export interface AnswerOptions {
  readonly id: string;
  /** Seconds since the epoch. */
  readonly created: number;
  readonly model: string;
  readonly n: number;
  readonly bestOf: number;
  readonly streamed: boolean;
  readonly logprobs: boolean;
  readonly promptLogprobs: boolean;
  readonly tokenIds: boolean;
  /** The stream tells what was asked of the prompt, because no answer follows it. */
  readonly promptInStream: boolean;
  readonly textOf: TextOf;
}

const none: readonly never[] = [];

/** What choice `index` gained with one delta of the engine. */
export function pieceOf(delta: Delta, index: number, textOf: TextOf): Piece {
  const { text, tokens: tokenIds, reasoning, calls, stopReason } = delta;
  const logprobs = delta.logprobs === undefined ? none : [new RecordView(int32Of(delta.logprobs), textOf)];
  const piece: Piece = { index, text, tokens: tokenIds.length, tokenIds, logprobs, finish: delta.finish ?? null };
  if (reasoning === undefined && calls === undefined && stopReason === undefined) return piece;
  return {
    ...piece,
    ...(reasoning === undefined ? {} : { reasoning }),
    ...(calls === undefined ? {} : { calls }),
    ...(stopReason === undefined ? {} : { stopReason }),
  };
}
