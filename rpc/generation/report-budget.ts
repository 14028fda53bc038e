/**
 * How many log-probabilities the answer to a call reports, and what it holds of them until it is written. A product of harmless numbers
 * (prompts, tokens, alternatives) can be an answer of gigabytes, so it is refused before the engine works for it: at the door where the
 * prompts are token ids, else when the prompt is encoded that makes it too much. One per call.
 */
import { type Failure, invalidParams } from '../../actors/messages/errors.js';
import { recordWords } from '../../actors/messages/logprobs.js';
import type { GenerationParams } from '../../actors/messages/requests.js';
import { type Holding, tooManyAnswers } from '../holding.js';

/** Log-probabilities that an answer reports, with alternatives. */
export interface Reports {
  /** For each token of a prompt, in all answers to it together. */
  readonly promptToken: number;
  /** For each generated token. */
  readonly token: number;
}

export interface ReportBudgetOptions {
  readonly reports: Reports;
  readonly params: GenerationParams;
  readonly numPrompts: number;
  /** `validation.max_reported_logprobs`. */
  readonly limit: number;
  readonly holding: Holding;
}

export class ReportBudget {
  readonly #options: ReportBudgetOptions;
  /** Of the prompts that are known. */
  #promptTokens = 0;
  #generated = 0;

  constructor(options: ReportBudgetOptions) {
    this.#options = options;
  }

  /** Prompts of `tokens` tokens together are part of the call. Returns why that is too much, or null. */
  addPrompts(tokens: number): Failure | null {
    const { params, limit, holding } = this.#options;
    this.#promptTokens += tokens;
    if (this.#entries() > limit) return invalidParams([{ path: '', message: this.#product() }]).failure;
    const bytes = params.promptLogprobs < 0 ? 0 : 4 * recordWords(params.promptLogprobs) * tokens;
    return bytes === 0 || holding.take(bytes) ? null : tooManyAnswers().failure;
  }

  /** `tokens` were generated, with `bytes` of records. Returns why the call must end, or null. */
  addGenerated(tokens: number, bytes: number): Failure | null {
    if (bytes === 0) return null;
    const { limit, holding } = this.#options;
    this.#generated += tokens;
    if (this.#entries() > limit) {
      const message = `The answer reports more than ${limit} log-probabilities (validation.max_reported_logprobs); set max_tokens`;
      return { kind: 'out_of_memory', message };
    }
    return holding.take(bytes)
      ? null
      : { kind: 'out_of_memory', message: 'Too many log-probabilities are kept for answers; try again later' };
  }

  #entries(): number {
    const { reports } = this.#options;
    return this.#promptTokens * reports.promptToken + Math.max(this.#asked(), this.#generated) * reports.token;
  }

  /** Tokens that may be generated; 0 when the call does not say. */
  #asked(): number {
    const { params, numPrompts } = this.#options;
    return numPrompts * params.bestOf * (params.maxTokens ?? 0);
  }

  #product(): string {
    const { reports, limit } = this.#options;
    const parts = [
      ...(reports.promptToken > 0 ? [`${this.#promptTokens} prompt tokens x ${reports.promptToken}`] : []),
      ...(reports.token > 0 && this.#asked() > 0 ? [`${this.#asked()} tokens to generate x ${reports.token}`] : []),
    ];
    return `the answer would report ${this.#entries()} log-probabilities (${parts.join(' + ')}); validation.max_reported_logprobs allows ${limit}`;
  }
}
