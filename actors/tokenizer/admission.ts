/**
 * Checks a request against the model and packs it for the scheduler. Pure; called by actor.ts when a prompt was encoded, and again
 * when the engine restarted.
 */
import { bytesOf } from '../messages/codec.js';
import { InferdError } from '../messages/errors.js';
import type { Admit, GenerationParams } from '../messages/requests.js';
import { packSamplingRow } from '../messages/sampling.js';
import { type RequestState, ranksSequences } from './decode/request-state.js';

/** Lengths in tokens. */
export interface LengthLimits {
  readonly maxModelLen: number;
  readonly maxInputLength: number;
  readonly maxTotalTokens: number;
}

/** The prompt's last k ids. */
export function truncated(ids: Int32Array, keepLast: number | null): Int32Array {
  return keepLast === null || keepLast >= ids.length ? ids : ids.slice(ids.length - Math.max(0, keepLast));
}

/** Longest prompt of a request that asks for so many tokens: where none shall follow, none needs room. */
export function longestPrompt(asked: number | null, { maxModelLen, maxInputLength, maxTotalTokens }: LengthLimits): number {
  const limit = Math.min(maxTotalTokens, maxModelLen);
  return asked === 0 && maxInputLength === limit - 1 ? limit : maxInputLength;
}

/**
 * Decides how many tokens may be generated. Nothing is cut silently: what does not fit is refused.
 * @throws InferdError invalid_params for an empty prompt, context_length_exceeded with {prompt_tokens, max_tokens, limit}.
 */
export function resolveMaxTokens(promptTokens: number, asked: number | null, limits: LengthLimits): number {
  if (promptTokens === 0)
    throw new InferdError('invalid_params', 'The prompt is empty', [{ path: 'prompt', message: 'The prompt has no tokens' }]);
  const limit = Math.min(limits.maxTotalTokens, limits.maxModelLen);
  const maxTokens = asked ?? Math.max(1, limit - promptTokens);
  const longest = longestPrompt(asked, limits);
  if (promptTokens > longest) {
    throw new InferdError('context_length_exceeded', `The prompt has ${promptTokens} tokens; at most ${longest} are allowed`, {
      prompt_tokens: promptTokens,
      max_tokens: maxTokens,
      limit: longest,
    });
  }
  if (promptTokens + maxTokens > limit) {
    throw new InferdError(
      'context_length_exceeded',
      `The prompt has ${promptTokens} tokens and ${maxTokens} more may be generated; together at most ${limit} are allowed`,
      { prompt_tokens: promptTokens, max_tokens: maxTokens, limit },
    );
  }
  return maxTokens;
}

/** The error for a prompt that is certain to have `atLeast` tokens, which are too many; the rest of it was not counted. */
export function promptTooLong(atLeast: number, asked: number | null, limits: LengthLimits): InferdError {
  const limit = longestPrompt(asked, limits);
  return new InferdError('context_length_exceeded', `The prompt has more than ${atLeast - 1} tokens; at most ${limit} are allowed`, {
    prompt_tokens: atLeast,
    max_tokens: asked ?? 1,
    limit,
  });
}

/**
 * The message that queues a request, with what each sequence generated so far. `newTokens` as in Admit.
 * @param admitted set in `request`.
 * @param eosTokenIds known to the scheduler, so a caller's stop id that repeats one is dropped (kept when eos is ignored).
 */
export function admitMessage(
  request: RequestState,
  admitted: NonNullable<RequestState['admitted']>,
  eosTokenIds: readonly number[],
  newTokens?: number,
): Admit {
  const { params } = request;
  const row = packSamplingRow(params.sampling, {
    seedLo: params.seedLo,
    seedHi: params.seedHi,
    topLogprobs: params.topLogprobs,
    promptLogprobs: params.promptLogprobs,
    grammar: admitted.grammar,
  });
  return {
    k: 'admit',
    id: request.id,
    promptIds: bytesOf(admitted.promptIds),
    generated: request.sequences.map((s) => bytesOf(Int32Array.from(s.generated))),
    finished: request.sequences.map((s) => s.finished),
    ...(ranksSequences(params) || params.topLogprobs >= 0 ? { cumulative: request.sequences.map((s) => s.cumulative) } : {}),
    samplingRow: bytesOf(row),
    bias: bytesOf(packBias(params.logitBias)),
    maxTokens: admitted.maxTokens,
    stopTokenIds: [...new Set([...params.stopTokenIds, ...(params.ignoreEos ? [] : admitted.endIds)])].filter(
      (id) => params.ignoreEos || !eosTokenIds.includes(id),
    ),
    ignoreEos: params.ignoreEos,
    bestOf: params.bestOf,
    priority: params.priority,
    arrivalMs: request.arrivalMs,
    turn: request.turn,
    ...(newTokens === undefined ? {} : { newTokens }),
    ...(request.admissions > 0 ? { again: true } : {}),
    ...(params.pooling === undefined ? {} : { pooling: params.pooling }),
    ...(params.adapter === undefined ? {} : { adapter: params.adapter }),
  };
}

function packBias(bias: GenerationParams['logitBias']): Int32Array {
  const words = new Int32Array(bias.length * 2);
  const floats = new Float32Array(words.buffer);
  bias.forEach(([id, value], i) => {
    words[2 * i] = id;
    floats[2 * i + 1] = value;
  });
  return words;
}
