/**
 * The table of histograms that requests fill when they end: a line is a name, what it says, its edges, and how to take a value from the
 * ended run. Names and edges are vLLM's. Pure.
 */
import type { PromptRun, SequenceRun } from './runs.js';

export interface Observed<Run> {
  readonly name: string;
  readonly help: string;
  /** Ascending; those of lengths end with the longest possible. */
  readonly edges: (maxModelLen: number) => readonly number[];
  /** `null`: this run has none. */
  readonly value: (run: Run) => number | null;
}

const REQUEST_SECONDS = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680] as const;
const NUMBERS_OF_ANSWERS = [1, 2, 5, 10, 20] as const;

/** vLLM's edges of seconds. */
export const EDGES = {
  firstToken: [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560],
  token: [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80],
} as const;

const request = () => REQUEST_SECONDS;
const token = () => EDGES.token;

/** 1, 2, 5, 10, 20, 50, ... up to `max`. */
export function lengthEdges(max: number): readonly number[] {
  const edges: number[] = [];
  for (let power = 1; power <= max; power *= 10) edges.push(...[1, 2, 5].map((digit) => digit * power).filter((edge) => edge <= max));
  return edges;
}

/** Once a prompt, whatever n: at the end of all its sequences, by abort too. */
export const perPrompt: readonly Observed<PromptRun>[] = [
  {
    name: 'vllm:e2e_request_latency_seconds',
    help: 'Time from arrival to the end of a request.',
    edges: request,
    value: (run) => (run.endMs - run.arrivalMs) / 1000,
  },
  {
    name: 'vllm:request_queue_time_seconds',
    help: 'Time from arrival to the first step of a request.',
    edges: request,
    value: (run) => (run.computed ? run.queueMs / 1000 : null),
  },
  {
    name: 'vllm:request_inference_time_seconds',
    help: 'Time from the first step to the last token of a request.',
    edges: request,
    value: (run) => (run.computed ? sinceFirstStep(run, run.lastMs) : null),
  },
  {
    name: 'vllm:request_prefill_time_seconds',
    help: 'Time from the first step to the first token of a request.',
    edges: request,
    value: (run) => (run.computed ? sinceFirstStep(run, run.firstMs) : null),
  },
  {
    name: 'vllm:request_prompt_tokens',
    help: 'Tokens of a prompt, those from the prefix cache included.',
    edges: lengthEdges,
    value: (run) => (run.computed ? run.promptTokens : null),
  },
  {
    name: 'vllm:request_prefill_kv_computed_tokens',
    help: 'Tokens of a prompt that were computed, not taken from the prefix cache.',
    edges: lengthEdges,
    value: (run) => (run.computed ? run.promptTokens - run.cachedTokens : null),
  },
  {
    name: 'vllm:request_max_num_generation_tokens',
    help: 'Tokens of the longest sequence of a request.',
    edges: lengthEdges,
    value: (run) => Math.max(...run.sequences.map((sequence) => sequence.tokens)),
  },
  { name: 'vllm:request_params_n', help: 'Parameter n of a request.', edges: () => NUMBERS_OF_ANSWERS, value: (run) => run.n },
  {
    name: 'vllm:request_params_max_tokens',
    help: 'Parameter max_tokens of a request, or what it is by default.',
    edges: lengthEdges,
    value: (run) => run.maxTokens,
  },
];

/** At the end of each sequence, of best_of too. */
export const perSequence: readonly Observed<SequenceRun>[] = [
  {
    name: 'vllm:request_generation_tokens',
    help: 'Tokens of a generated sequence.',
    edges: lengthEdges,
    value: (run) => run.tokens,
  },
  {
    name: 'vllm:request_decode_time_seconds',
    help: 'Time from the first to the last token of a sequence.',
    edges: request,
    value: (run) => (run.tokens > 0 ? (run.lastMs - run.firstMs) / 1000 : null),
  },
  {
    name: 'vllm:request_time_per_output_token_seconds',
    help: 'Mean time between two tokens of a sequence.',
    edges: token,
    value: (run) => (run.tokens > 1 ? (run.lastMs - run.firstMs) / 1000 / (run.tokens - 1) : null),
  },
];

/** The clocks of the two threads may be apart by a little. */
function sinceFirstStep({ arrivalMs, queueMs }: PromptRun, ms: number): number {
  return Math.max(0, ms - arrivalMs - queueMs) / 1000;
}
