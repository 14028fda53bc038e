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

/** What choice `index` gained with one delta of the engine. */
export function pieceOf(delta: Delta, index: number, textOf: TextOf): Piece {
  return {
    index,
    text: delta.text,
    ...(delta.reasoning === undefined ? {} : { reasoning: delta.reasoning }),
    ...(delta.calls === undefined ? {} : { calls: delta.calls }),
    tokens: delta.tokens.length,
    tokenIds: delta.tokens,
    logprobs: delta.logprobs === undefined ? [] : [new RecordView(int32Of(delta.logprobs), textOf)],
    finish: delta.finish ?? null,
    ...(delta.stopReason === undefined ? {} : { stopReason: delta.stopReason }),
  };
}
