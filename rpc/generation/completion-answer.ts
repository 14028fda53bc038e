/**
 * Builds the answer and the delta events of completions.create in OpenAI's shapes. One per call. With `echo` each choice begins with
 * its prompt, and its log-probabilities with the prompt's, in streams too.
 */
import type { Delta } from '../../actors/messages/requests.js';
import { mergePieces, type Piece } from '../progress-stream.js';
import type { Usage } from '../schemas/common.js';
import type { Completion, CompletionDelta } from '../schemas/completion.js';
import { type AnswerOptions, pieceOf } from './answer.js';
import type { CallOutcome, PromptRun } from './call.js';
import type { Choice } from './choice.js';
import { codePoints, completionLogprobs, promptEntries, promptLogprobs } from './logprobs.js';
import { givenChoices } from './rank.js';

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
    const piece = pieceOf(delta, index);
    if (!this.#options.echo || this.#begun.has(index)) return [piece];
    this.#begun.add(index);
    const logprobs = this.#options.logprobs ? entriesOf(prompt) : [];
    return [{ index, text: prompt.promptText, tokens: 0, tokenIds: [], logprobs, finish: null }, piece];
  }

  /** `choices` of one delta event. */
  deltas(pieces: readonly Piece[]): readonly CompletionDelta[] {
    return mergePieces(pieces).map((piece) => {
      const from = this.#offsets.get(piece.index) ?? 0;
      if (this.#options.logprobs) this.#offsets.set(piece.index, from + piece.logprobs.reduce((sum, e) => sum + codePoints(e.token), 0));
      return {
        index: piece.index,
        text: piece.text,
        ...(this.#options.logprobs ? { logprobs: completionLogprobs(piece.logprobs, from) } : {}),
        finish_reason: piece.finish as Finish | null, // proof: set from Delta.finish
        ...(piece.stopReason === undefined ? {} : { stop_reason: piece.stopReason }),
        ...(this.#options.tokenIds ? { token_ids: [...piece.tokenIds] } : {}),
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
    const entries = echo && logprobs ? [...entriesOf(prompt), ...choice.logprobs] : choice.logprobs;
    return {
      index,
      ...(streamed ? {} : { text: echo ? prompt.promptText + choice.text : choice.text }),
      logprobs: logprobs ? completionLogprobs(entries, 0) : null,
      finish_reason: (choice.finish ?? 'abort') as Finish, // proof: Delta.finish is of this type
      ...(choice.stopReason === undefined ? {} : { stop_reason: choice.stopReason }),
      ...(tokenIds ? { token_ids: choice.tokenIds, prompt_token_ids: Array.from(prompt.promptIds) } : {}),
      ...(this.#options.promptLogprobs ? { prompt_logprobs: promptLogprobs(entriesOf(prompt)) } : {}),
    };
  }
}

function entriesOf(prompt: PromptRun) {
  return promptEntries(prompt.logprobs, prompt.promptText, prompt.promptIds[0] ?? 0);
}
