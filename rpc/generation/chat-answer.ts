/** Builds the answer and the delta events of chat.completions.create in OpenAI's shapes. One per call. */
import type { CallPiece, Delta } from '../../actors/messages/requests.js';
import { packedIds } from '../packed-list.js';
import type { ChatCompletion, ChatDelta } from '../schemas/chat.js';
import type { Usage } from '../schemas/common.js';
import { type AnswerOptions, pieceOf } from './answer.js';
import { givenChoices } from './best-of.js';
import type { CallOutcome, PromptRun } from './call.js';
import type { Choice, ToolCall } from './choice.js';
import { chatLogprobs, promptLogprobs } from './logprobs.js';
import { isEmpty, mergePieces, type Piece } from './piece.js';
import { promptFields, promptPieces } from './prompt-pieces.js';

type Finish = ChatCompletion['choices'][number]['finish_reason'];

export class ChatAnswer {
  readonly #options: AnswerOptions;
  /** By choice, what was not sent because it would tell nothing: goes with the next piece. */
  readonly #unsent = new Map<number, Piece[]>();
  /** By choice, its last call as far as it was sent. */
  readonly #lastCall = new Map<number, string>();
  readonly #begun = new Set<number>();
  #promptTold = false;

  constructor(options: AnswerOptions) {
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
    for (const call of piece.calls ?? []) {
      this.#lastCall.set(index, (call.id === undefined ? (this.#lastCall.get(index) ?? '') : '') + call.arguments);
    }
    const unsent = this.#unsent.get(index) ?? [];
    if (isEmpty(piece)) {
      unsent.push(piece);
      this.#unsent.set(index, unsent);
      return [];
    }
    this.#unsent.delete(index);
    const whole = unsent.length === 0 ? [piece] : mergePieces([...unsent, piece]);
    return this.#lastCall.has(index) ? whole.flatMap(endApart) : whole;
  }

  /** `choices` of one delta event. */
  deltas(pieces: readonly Piece[]): readonly ChatDelta[] {
    return mergePieces(pieces).map((piece) => {
      const { index, text, reasoning, calls } = piece;
      const { logprobs, tokenIds } = this.#options;
      const first = !this.#begun.has(index);
      if (first) this.#begun.add(index);
      else if (!logprobs && !tokenIds && reasoning === undefined && calls === undefined && piece.finish === null) {
        return { index, delta: { content: text }, finish_reason: null };
      }
      return {
        index,
        delta: {
          ...(first ? { role: 'assistant' as const } : {}),
          ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
          ...(text === '' && (reasoning !== undefined || calls !== undefined) ? {} : { content: text }),
          ...(calls === undefined ? {} : { tool_calls: calls.map(callDelta) }),
        },
        ...(logprobs ? { logprobs: { content: chatLogprobs(piece.logprobs) } } : {}),
        finish_reason: piece.finish === null ? null : finishOf(piece.finish, this.#lastCall.get(index)),
        ...(piece.stopReason === undefined ? {} : { stop_reason: piece.stopReason }),
        ...(tokenIds ? { token_ids: [...piece.tokenIds] } : {}),
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
    const { streamed, logprobs, tokenIds } = this.#options;
    const { calls, reasoning, text } = choice;
    return {
      index,
      message: {
        role: 'assistant',
        ...(streamed ? {} : { content: text === '' && (calls.length > 0 || reasoning !== '') ? null : text }),
        ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
        ...(calls.length === 0 ? {} : { tool_calls: calls.map(toolCall) }),
      },
      logprobs: logprobs ? { content: chatLogprobs([choice.logprobs]) } : null,
      finish_reason: finishOf(choice.finish ?? 'abort', calls.at(-1)?.arguments),
      ...(choice.stopReason === undefined ? {} : { stop_reason: choice.stopReason }),
      ...(tokenIds ? { token_ids: packedIds(choice.tokenIds.length, choice.tokenIds) } : {}),
    };
  }
}

/** The end of an answer with calls is told after them: OpenAI's client takes a call that comes with the end for unfinished. */
function endApart(piece: Piece): readonly Piece[] {
  const { finish, stopReason, ...rest } = piece;
  if (finish === null) return [piece];
  const before: Piece = { ...rest, finish: null };
  if (isEmpty(before)) return [{ ...piece, apart: true }];
  const nothing = { index: piece.index, text: '', tokens: 0, tokenIds: [], logprobs: [] };
  return [before, { ...nothing, finish, ...(stopReason === undefined ? {} : { stopReason }), apart: true }];
}

/**
 * Why an answer ended. One with calls says `tool_calls`, whatever ended it; but where the number of tokens cut the last call, it says
 * `length`, so that nobody takes half a call for a whole one (as OpenAI and vLLM do).
 * @param lastCall arguments of the last call; undefined when there is none
 */
function finishOf(finish: string, lastCall: string | undefined): Finish {
  if (lastCall === undefined || (finish === 'length' && !isJson(lastCall))) return finish as Finish; // proof: Delta.finish is of this type
  return 'tool_calls';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function toolCall({ id, name, arguments: text }: ToolCall) {
  return { id, type: 'function' as const, function: { name, arguments: text } };
}

function callDelta({ index, id, name, arguments: text }: CallPiece) {
  return {
    index,
    ...(id === undefined ? {} : { id, type: 'function' as const }),
    function: { ...(name === undefined ? {} : { name }), arguments: text },
  };
}
