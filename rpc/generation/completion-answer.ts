/**
 * Builds the answer and the delta events of completions.create in OpenAI's shapes. One per call. With `echo` each choice begins with
 * its prompt, and its log-probabilities with the prompt's, in streams too.
 */
import type { Delta } from '../../actors/messages/requests.js';
import { packedIds } from '../packed-list.js';
import type { Usage } from '../schemas/common.js';
import type { Completion, CompletionDelta } from '../schemas/completion.js';
import { type AnswerOptions, pieceOf } from './answer.js';
import { givenChoices } from './best-of.js';
import type { CallOutcome, PromptRun } from './call.js';
import type { Choice } from './choice.js';
import { codePointsOf, completionLogprobs, promptLogprobs } from './logprobs.js';
import { mergePieces, type Piece } from './piece.js';
import { PROMPT_RECORDS, promptFields, promptPieces } from './prompt-pieces.js';

export interface CompletionAnswerOptions extends AnswerOptions {
  readonly echo: boolean;
}

type Finish = Completion['choices'][number]['finish_reason'];

export class CompletionAnswer {
  readonly #options: CompletionAnswerOptions;
  /** Code points sent so far, by choice. */
  readonly #offsets = new Map<number, number>();
  readonly #begun = new Set<number>();

  constructor(options: CompletionAnswerOptions) {
    this.#options = options;
  }

  /** What to stream for one delta of the engine. */
  pieces(delta: Delta, index: number, prompt: PromptRun): readonly Piece[] {
    const piece = pieceOf(delta, index, this.#options.textOf);
    if (this.#begun.has(index)) return [piece];
    this.#begun.add(index);
    const told = this.#options.promptInStream ? promptPieces(index, prompt, this.#options) : [];
    return [...told, ...(this.#options.echo ? this.#echo(index, prompt) : []), piece];
  }

  /** A prompt in pieces: its text, cut to where a piece ends or not, goes with the first of its log-probabilities. */
  #echo(index: number, prompt: PromptRun): readonly Piece[] {
    const piece = { index, tokens: 0, tokenIds: [], finish: null };
    if (!this.#options.logprobs) return [{ ...piece, text: prompt.promptText, logprobs: [] }];
    return [...prompt.entries.parts(PROMPT_RECORDS)].map((part, i) => ({
      ...piece,
      text: i === 0 ? prompt.promptText : '',
      logprobs: [part],
    }));
  }

  /** `choices` of one delta event. */
  deltas(pieces: readonly Piece[]): readonly CompletionDelta[] {
    return mergePieces(pieces).map((piece) => {
      const from = this.#offsets.get(piece.index) ?? 0;
      const { logprobs, tokenIds } = this.#options;
      if (logprobs) this.#offsets.set(piece.index, from + codePointsOf(piece.logprobs));
      const finish = piece.finish as Finish | null; // proof: set from Delta.finish
      const plain = { index: piece.index, text: piece.text, finish_reason: finish };
      if (!logprobs && !tokenIds && finish === null && piece.prompt === undefined) return plain;
      return {
        ...plain,
        ...(logprobs ? { logprobs: completionLogprobs(piece.logprobs, from) } : {}),
        ...(piece.stopReason === undefined ? {} : { stop_reason: piece.stopReason }),
        ...(tokenIds ? { token_ids: [...piece.tokenIds] } : {}),
        ...promptFields(piece.prompt),
      };
    });
  }

  /** The whole answer; without the text when it was streamed. */
  build({ prompts, choices }: CallOutcome, usage: Usage): Completion {
    const { id, created, model, n, bestOf } = this.#options;
    const given = givenChoices(choices, n, bestOf);
    return {
      id,
      object: 'text_completion',
      created,
      model,
      choices: given.flatMap((choice, index) => {
        const prompt = prompts[choice.promptIndex];
        return prompt === undefined ? [] : [this.#choice(choice, index, prompt)];
      }),
      usage,
    };
  }

  #choice(choice: Choice, index: number, prompt: PromptRun): Completion['choices'][number] {
    const { streamed, echo, logprobs, tokenIds } = this.#options;
    const sources = echo && logprobs ? [prompt.entries, choice.logprobs] : [choice.logprobs];
    return {
      index,
      ...(streamed ? {} : { text: echo ? prompt.promptText + choice.text : choice.text }),
      logprobs: logprobs ? completionLogprobs(sources, 0) : null,
      finish_reason: (choice.finish ?? 'abort') as Finish, // proof: Delta.finish is of this type
      ...(choice.stopReason === undefined ? {} : { stop_reason: choice.stopReason }),
      ...(tokenIds
        ? {
            token_ids: packedIds(choice.tokenIds.length, choice.tokenIds),
            prompt_token_ids: packedIds(prompt.promptIds.length, [prompt.promptIds]),
          }
        : {}),
      ...(this.#options.promptLogprobs ? { prompt_logprobs: promptLogprobs([prompt.entries]) } : {}),
    };
  }
}
