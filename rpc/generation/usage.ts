/** Token counts and times of a call, over all its prompts and sequences. Times of several are the slowest one's. */
import type { Usage } from '../schemas/common.js';
import type { Choice } from './choice.js';

export interface PromptFacts {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly queueMs: number;
}

/** Tokens of the prompts, and every generated one, also of sequences that best_of drops. */
export function countedTokens(prompts: readonly PromptFacts[], choices: readonly Choice[]) {
  let promptTokens = 0;
  let completionTokens = 0;
  for (const prompt of prompts) promptTokens += prompt.promptTokens;
  for (const choice of choices) completionTokens += choice.numTokens;
  return { promptTokens, completionTokens };
}

/** `arrivalMs`, `nowMs`: performance.now(). */
export function usageOf(prompts: readonly PromptFacts[], choices: readonly Choice[], arrivalMs: number, nowMs: number): Usage {
  const { promptTokens, completionTokens } = countedTokens(prompts, choices);
  let cachedTokens = 0;
  let queueMs = 0;
  for (const prompt of prompts) {
    cachedTokens += prompt.cachedTokens;
    queueMs = Math.max(queueMs, prompt.queueMs);
  }
  let ttftMs = 0;
  let tpotMs = 0;
  for (const { numTokens, firstMs, lastMs } of choices) {
    if (numTokens > 0) ttftMs = Math.max(ttftMs, firstMs - arrivalMs);
    if (numTokens > 1) tpotMs = Math.max(tpotMs, (lastMs - firstMs) / (numTokens - 1));
  }
  const details = completionDetails(choices);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    ...(details === null ? null : { completion_tokens_details: details }),
    ttft_s: seconds(ttftMs),
    tpot_s: seconds(tpotMs),
    latency_s: seconds(nowMs - arrivalMs),
    queue_s: seconds(queueMs),
  };
}

/** What is told only where a sequence has it: tokens before the answer, and drafted ones. `null`: none has. */
function completionDetails(choices: readonly Choice[]): NonNullable<Usage['completion_tokens_details']> | null {
  let reasoning: number | null = null;
  let drafts: { accepted: number; rejected: number } | null = null;
  for (const { reasoningTokens, drafts: counts } of choices) {
    if (reasoningTokens !== null) reasoning = (reasoning ?? 0) + reasoningTokens;
    if (counts === null) continue;
    drafts ??= { accepted: 0, rejected: 0 };
    drafts.accepted += counts.accepted;
    drafts.rejected += counts.rejected;
  }
  if (reasoning === null && drafts === null) return null;
  return {
    ...(reasoning === null ? null : { reasoning_tokens: reasoning }),
    ...(drafts === null ? null : { accepted_prediction_tokens: drafts.accepted, rejected_prediction_tokens: drafts.rejected }),
  };
}

function seconds(ms: number): number {
  return Math.round(ms * 1000) / 1e6;
}
