/** Builds the answer and the delta events of chat.completions.create in OpenAI's shapes. One per call. */
import type { Delta } from '../../actors/messages/requests.js';
import { packedIds } from '../packed-list.js';
import type { ChatCompletion, ChatDelta } from '../schemas/chat.js';
import type { Usage } from '../schemas/common.js';
import { type AnswerOptions, pieceOf } from './answer.js';
import { givenChoices } from './best-of.js';
import type { CallOutcome, PromptRun } from './call.js';
import type { Choice } from './choice.js';
import { chatLogprobs, promptLogprobs } from './logprobs.js';
import { mergePieces, type Piece, type ToolCall } from './piece.js';
import { promptFields, promptPieces } from './prompt-pieces.js';
import { parseToolCall, ToolCallFilter } from './tool-calls.js';

export interface ChatAnswerOptions extends AnswerOptions {
  /** Functions that the answer may call; null when none were offered. */
  readonly tools: ReadonlySet<string> | null;
}

type Finish = ChatCompletion['choices'][number]['finish_reason'];

export class ChatAnswer {
  readonly #options: ChatAnswerOptions;
  readonly #filters = new Map<number, ToolCallFilter>();
  readonly #calls = new Map<number, ToolCall>();
  readonly #begun = new Set<number>();
  #promptTold = false;

  constructor(options: ChatAnswerOptions) {
    this.#options = options;
  }

  /** What to stream for one delta of the engine. */
  pieces(delta: Delta, index: number, prompt: PromptRun): readonly Piece[] {
    if (!this.#options.promptInStream || this.#promptTold) return this.#answerPieces(delta, index);
    this.#promptTold = true;
    return [...promptPieces(index, prompt, this.#options), ...this.#answerPieces(delta, index)];
  }

  /** What a chunk says of the prompt, beside its choices. */
  chunkFields(pieces: readonly Piece[]): object {
    return promptFields(mergePieces(pieces).find(({ prompt }) => prompt !== undefined)?.prompt);
  }

  #answerPieces(delta: Delta, index: number): readonly Piece[] {
    const piece = pieceOf(delta, index, this.#options.textOf);
    const { tools } = this.#options;
    if (tools === null) return [piece];
    let filter = this.#filters.get(index);
    if (filter === undefined) {
      filter = new ToolCallFilter(tools);
      this.#filters.set(index, filter);
    }
    const { pieces, call } = filter.add(piece);
    if (call !== null) this.#calls.set(index, call);
    return pieces;
  }

  /** `choices` of one delta event. */
  deltas(pieces: readonly Piece[]): readonly ChatDelta[] {
    return mergePieces(pieces).map((piece) => {
      const first = !this.#begun.has(piece.index);
      this.#begun.add(piece.index);
      return {
        index: piece.index,
        delta: {
          ...(first ? { role: 'assistant' as const } : {}),
          ...(piece.toolCall === undefined ? { content: piece.text } : { tool_calls: [{ index: 0, ...piece.toolCall }] }),
        },
        ...(this.#options.logprobs ? { logprobs: { content: chatLogprobs(piece.logprobs) } } : {}),
        finish_reason: piece.finish as Finish | null, // proof: set from Delta.finish or by ToolCallFilter
        ...(piece.stopReason === undefined ? {} : { stop_reason: piece.stopReason }),
        ...(this.#options.tokenIds ? { token_ids: [...piece.tokenIds] } : {}),
      };
    });
  }

  /** The whole answer; without the content when it was streamed. */
  build({ prompts, choices }: CallOutcome, usage: Usage): ChatCompletion {
    const { id, created, model, n, bestOf } = this.#options;
    const prompt = prompts[0];
    return {
      id,
      object: 'chat.completion',
      created,
      model,
      choices: givenChoices(choices, n, bestOf).map((choice, index) => this.#choice(choice, index)),
      usage,
      ...(this.#options.tokenIds && prompt !== undefined
        ? { prompt_token_ids: packedIds(prompt.promptIds.length, [prompt.promptIds]) }
        : {}),
      ...(this.#options.promptLogprobs && prompt !== undefined ? { prompt_logprobs: promptLogprobs([prompt.entries]) } : {}),
    };
  }

  #choice(choice: Choice, index: number): ChatCompletion['choices'][number] {
    const { streamed, tools, logprobs, tokenIds } = this.#options;
    const call = streamed ? (this.#calls.get(index) ?? null) : tools === null ? null : parseToolCall(choice.text, tools);
    return {
      index,
      message: {
        role: 'assistant',
        ...(streamed ? {} : { content: call === null ? choice.text : null }),
        ...(call === null ? {} : { tool_calls: [call] }),
      },
      logprobs: logprobs ? { content: chatLogprobs([choice.logprobs]) } : null,
      finish_reason: call === null ? ((choice.finish ?? 'abort') as Finish) : 'tool_calls', // proof: Delta.finish is of this type
      ...(choice.stopReason === undefined ? {} : { stop_reason: choice.stopReason }),
      ...(tokenIds ? { token_ids: packedIds(choice.tokenIds.length, choice.tokenIds) } : {}),
    };
  }
}
