/** Token counts and times of a call, over all its prompts and sequences. Times of several are the slowest one's. */
import type { Usage } from '../schemas/common.js';
import type { Choice } from './choice.js';

export interface PromptFacts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly queueMs: number;
}

/** `arrivalMs`, `nowMs`: performance.now(). Every generated token counts, also of sequences that best_of drops. */
export function usageOf(prompts: readonly PromptFacts[], choices: readonly Choice[], arrivalMs: number, nowMs: number): Usage {
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  const promptTokens = sum(prompts.map((p) => p.promptTokens));
  const completionTokens = sum(choices.map((c) => c.numTokens));
  const reasoning = choices.map((c) => c.reasoningTokens).filter((tokens) => tokens !== null);
  const drafts = choices.map((c) => c.drafts).filter((counts) => counts !== null);
  const details = {
    ...(reasoning.length === 0 ? {} : { reasoning_tokens: sum(reasoning) }),
    ...(drafts.length === 0
      ? {}
      : {
          accepted_prediction_tokens: sum(drafts.map((d) => d.accepted)),
          rejected_prediction_tokens: sum(drafts.map((d) => d.rejected)),
        }),
  };
  const begun = choices.filter((c) => c.numTokens > 0);
  const ttftMs = begun.map((c) => c.firstMs - arrivalMs);
  const tpotMs = begun.filter((c) => c.numTokens > 1).map((c) => (c.lastMs - c.firstMs) / (c.numTokens - 1));
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: sum(prompts.map((p) => p.cachedTokens)) },
    ...(Object.keys(details).length === 0 ? {} : { completion_tokens_details: details }),
    ttft_s: seconds(Math.max(0, ...ttftMs)),
    tpot_s: seconds(Math.max(0, ...tpotMs)),
    latency_s: seconds(nowMs - arrivalMs),
    queue_s: seconds(Math.max(0, ...prompts.map((p) => p.queueMs))),
  };
}

function seconds(ms: number): number {
  return Math.round(ms * 1000) / 1e6;
}
