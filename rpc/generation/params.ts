/**
 * The body of a completion call -> GenerationParams of the engine: defaults, and the rules between fields. All that is wrong is said at
 * once, as for the schema. Semantics follow vLLM; best_of follows its last version that had it.
 */
import { invalidParams, type ParamIssue } from '../../actors/messages/errors.js';
import type { GenerationParams } from '../../actors/messages/requests.js';
import type { KnownModel } from '../models.js';
import type { GenerationBody } from '../schemas/generation.js';
import { samplingValues } from '../schemas/sampling.js';
import { refuseUnsupported } from '../schemas/unsupported.js';
import { constraintOf, refuseBesideConstraint } from './constraint.js';

/** What chat and text completions say differently. */
export interface GenerationExtras {
  /** -1 = none. */
  readonly topLogprobs: number;
  /** -1 = none. */
  readonly promptLogprobs: number;
  readonly echo: boolean;
  /** `null`: as many as fit. */
  readonly defaultMaxTokens: number | null;
  /** Something else than the fields of a constraint holds the answer to a form: calls of tools. */
  readonly constrained: boolean;
}

/** Temperatures below this are greedy in every sampler. */
const greedyBelow = 1e-5;

/** @throws InferdError invalid_params or unsupported */
export function generationParams(
  body: GenerationBody,
  { model, config: { validation: limits } }: KnownModel,
  extras: GenerationExtras,
): GenerationParams {
  refuseUnsupported(body);
  const issues: ParamIssue[] = [];
  const refuse = (path: string, message: string): void => void issues.push({ path, message });
  const sampling = samplingValues(body, model.generation);
  const n = body.n ?? 1;
  const bestOf = body.best_of ?? n;
  const maxTokens = body.max_completion_tokens ?? body.max_tokens ?? extras.defaultMaxTokens;
  const stop = typeof body.stop === 'string' ? [body.stop] : (body.stop ?? []);
  const stopTokenIds = body.stop_token_ids ?? [];

  // The schema holds all models to the daemon's limits; those of one may be narrower.
  if (n > limits.max_n) refuse('n', `must be at most ${limits.max_n} for this model`);
  if (bestOf > Math.max(limits.best_of, limits.max_n)) refuse('best_of', `must be at most ${limits.best_of} for this model`);
  if (extras.topLogprobs > limits.max_top_n_tokens) refuse('top_logprobs', `must be at most ${limits.max_top_n_tokens} for this model`);
  if (bestOf < n) refuse('best_of', 'must be at least n');
  if (bestOf > n && streams(body)) refuse('best_of', 'must equal n when the answer is streamed');
  if (bestOf > n && sampling.temperature < greedyBelow) refuse('best_of', 'must equal n when temperature is 0: all answers are the same');
  if (maxTokens === 0 && !extras.echo && (body.prompt_logprobs ?? null) === null) {
    refuse(
      body.max_completion_tokens === 0 ? 'max_completion_tokens' : 'max_tokens',
      'may be 0 only with echo or prompt_logprobs: there would be nothing to answer',
    );
  }
  if (maxTokens !== null && sampling.min_tokens > maxTokens) refuse('min_tokens', 'must not be greater than max_tokens');
  if (stop.length + stopTokenIds.length > limits.max_stop_sequences) {
    refuse('stop', `stop and stop_token_ids may have at most ${limits.max_stop_sequences} entries together`);
  }
  const constraint = constraintOf(body, refuse);
  const ignoreEos = body.ignore_eos ?? false;
  if (constraint !== null || extras.constrained) refuseBesideConstraint({ min_tokens: sampling.min_tokens, ignore_eos: ignoreEos }, refuse);
  if (issues.length > 0) throw invalidParams(issues);

  const [seedLo, seedHi] = seedWords(body.seed ?? null);
  return {
    sampling,
    seedLo,
    seedHi,
    topLogprobs: extras.topLogprobs,
    promptLogprobs: Math.max(extras.promptLogprobs, body.prompt_logprobs ?? -1),
    logitBias: Object.entries(body.logit_bias ?? {}).map(([id, bias]) => [Number(id), bias] as const),
    maxTokens,
    stop,
    stopTokenIds,
    includeStop: body.include_stop_str_in_output ?? false,
    ignoreEos,
    skipSpecialTokens: body.skip_special_tokens ?? true,
    n,
    bestOf,
    priority: body.priority ?? 0,
    truncatePromptTokens: body.truncate_prompt_tokens ?? null,
    echo: extras.echo,
    constraint,
  };
}

/** True when the body asks for a stream. */
export function streams(body: GenerationBody): boolean {
  return body.stream !== undefined && body.stream !== null && body.stream !== false;
}

/** Low and high word of a 64-bit seed, two's complement; random when none is given. */
function seedWords(seed: number | null): readonly [number, number] {
  if (seed === null) return [randomWord(), randomWord()];
  const bits = BigInt.asUintN(64, BigInt(seed));
  return [Number(bits & 0xffff_ffffn), Number(bits >> 32n)];
}

/** Random words drawn at a time: one call of the system's source costs as much for a thousand. */
const drawn = new Uint32Array(1024);
let left = 0;

function randomWord(): number {
  if (left === 0) {
    crypto.getRandomValues(drawn);
    left = drawn.length;
  }
  return drawn[--left] ?? 0;
}
