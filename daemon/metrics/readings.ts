/**
 * The table of figures that are read when somebody asks: a line is a name, its type, what it says, and where it is read. Names, types and
 * labels are vLLM's, or begin with inferd_. Pure.
 */

import type { ServedModel } from '../../actors/client-types.js';
import type { HistogramCounts, SchedulerStats, StepHistograms } from '../../actors/messages/calls.js';
import type { Config } from '../../config/schema.js';
import type { Traffic } from '../front/traffic.js';
import type { Books } from './books.js';
import type { Sample } from './exposition.js';

/** Where figures are read. */
export interface Source {
  readonly books: Books;
  /** `null` while the engine does not answer. */
  readonly stats: SchedulerStats | null;
  readonly steps: StepHistograms | null;
  /** How many may run at the same time, and the names of those in use. */
  readonly adapters: { readonly most: number; readonly running: readonly string[]; readonly waiting: readonly string[] };
  /** Requests without an end. */
  readonly unfinished: number;
  readonly model: ServedModel | null;
  readonly cache: Config['cache'];
  readonly traffic: Pick<Traffic, 'connections' | 'answers' | 'errors'>;
  readonly webSockets: number;
  /** Tokens a second of late. */
  readonly rates: { readonly prompt: number; readonly generation: number };
}

export interface Reading {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly read: (source: Source) => number | readonly Sample[] | HistogramCounts;
}

type Read<T> = (source: Source) => T;
const gauge = (name: string, help: string, read: Read<number | readonly Sample[]>): Reading => ({ name, type: 'gauge', help, read });
const counter = (name: string, help: string, read: Read<number | readonly Sample[]>): Reading => ({ name, type: 'counter', help, read });
const histogram = (name: string, help: string, read: Read<HistogramCounts | readonly []>): Reading => ({
  name,
  type: 'histogram',
  help,
  read,
});

/** Figures of an engine group; each sample has the labels of its model, and the number of the group. */
export const engineReadings: readonly Reading[] = [
  gauge('vllm:num_requests_running', 'Requests that run.', ({ stats }) => stats?.requests.running ?? 0),
  gauge('vllm:num_requests_waiting', 'Requests that wait to run.', ({ stats, unfinished }) => stats?.requests.waiting ?? unfinished),
  gauge('vllm:kv_cache_usage_perc', 'Share of the KV blocks that requests hold, 0 to 1.', usedShare),
  gauge('vllm:lora_requests_info', 'Adapters in use; the value is the time.', ({ adapters: { most, running, waiting } }) => {
    const labels = { max_lora: String(most), running_lora_adapters: running.join(','), waiting_lora_adapters: waiting.join(',') };
    return [{ labels, value: Date.now() / 1000 }];
  }),
  gauge('vllm:cache_config_info', 'The KV cache, in labels.', (source) => [{ labels: cacheLabels(source), value: 1 }]),
  gauge('vllm:engine_sleep_state', 'Which of the states the engine is in; it never sleeps.', () =>
    ['awake', 'weights_offloaded', 'discard_all'].map((state) => ({ labels: { sleep_state: state }, value: state === 'awake' ? 1 : 0 })),
  ),

  counter('vllm:prompt_tokens_total', 'Prompt tokens, cached ones included, each prompt once.', ({ books }) => books.promptTokens),
  counter('vllm:generation_tokens_total', 'Generated tokens.', ({ books }) => books.generatedTokens),
  counter('vllm:request_success_total', 'Sequences by how they ended.', endings),
  counter('vllm:num_preemptions_total', 'Preemptions since the engine started.', ({ stats }) => stats?.requests.preempted_total ?? 0),
  counter('vllm:prefix_cache_queries_total', 'Prompt tokens looked up in the prefix cache.', ({ books }) => books.queriedTokens),
  counter('vllm:prefix_cache_hits_total', 'Prompt tokens found in the prefix cache.', ({ books }) => books.cachedTokens),
  counter('vllm:prompt_tokens_cached_total', 'Prompt tokens found in the prefix cache.', ({ books }) => books.cachedTokens),
  counter('vllm:prompt_tokens_by_source_total', 'Prompt tokens by where their KV came from.', ({ books }) => [
    { labels: { source: 'local_compute' }, value: books.promptTokens - books.cachedTokens },
    { labels: { source: 'local_cache_hit' }, value: books.cachedTokens },
    { labels: { source: 'external_kv_transfer' }, value: 0 },
  ]),
  counter('vllm:admission_rejections_total', 'Requests refused for lack of room, by error.code.', ({ books }) =>
    [...books.rejections].map(([reason, value]) => ({ labels: { reason }, value })),
  ),
  counter('vllm:http_requests_total', 'HTTP requests by route, method and status.', ({ traffic }) =>
    traffic.answers.map(({ handler, method, status, count }) => ({ labels: { handler, method, status }, value: count })),
  ),

  histogram('vllm:time_to_first_token_seconds', 'Time from arrival to the first token.', ({ books }) => books.firstToken),
  histogram('vllm:inter_token_latency_seconds', 'Time between two tokens of a sequence.', ({ books }) => books.gaps),
  histogram('vllm:iteration_tokens_total', 'Tokens of a step.', ({ steps }) => steps?.tokens ?? []),
  histogram('inferd_step_seconds', 'Time of a step on the device.', ({ steps }) => steps?.seconds ?? []),

  counter(
    'vllm:spec_decode_num_drafts_total',
    'Samples that drafts were compared with.',
    ({ stats }) => stats?.speculation?.drafts_total ?? 0,
  ),
  counter(
    'vllm:spec_decode_num_draft_tokens_total',
    'Drafted tokens that were compared.',
    ({ stats }) => stats?.speculation?.draft_tokens_total ?? 0,
  ),
  counter(
    'vllm:spec_decode_num_accepted_tokens_total',
    'Drafted tokens that were accepted.',
    ({ stats }) => stats?.speculation?.accepted_tokens_total ?? 0,
  ),
  counter('vllm:spec_decode_num_accepted_tokens_per_pos_total', 'Drafted tokens that were accepted, by their place.', ({ stats }) =>
    (stats?.speculation?.accepted_per_position ?? []).map((value, position) => ({ labels: { position: String(position) }, value })),
  ),
  counter('inferd_spec_decode_accepted_total', 'Samples by how many of their drafts were accepted.', ({ stats }) =>
    (stats?.speculation?.accepted_histogram ?? []).map((value, accepted) => ({ labels: { accepted: String(accepted) }, value })),
  ),

  // What vLLM counts and inferd does not do.
  ...[
    'vllm:external_prefix_cache_queries_total',
    'vllm:external_prefix_cache_hits_total',
    'vllm:prompt_tokens_recomputed_total',
    'vllm:corrupted_requests_total',
  ].map((name) => counter(name, 'Always 0 here.', () => 0)),

  // Names that vLLM gave up, or that only its readers use.
  histogram('vllm:time_per_output_token_seconds', 'Old name of vllm:inter_token_latency_seconds.', ({ books }) => books.gaps),
  gauge('vllm:gpu_cache_usage_perc', 'Old name of vllm:kv_cache_usage_perc.', usedShare),
  gauge('vllm:cpu_cache_usage_perc', 'Share of the host blocks that swapped requests hold, 0 to 1.', ({ stats }) =>
    share(stats?.kv.swap_used, stats?.kv.swap_total),
  ),
  gauge('vllm:num_requests_swapped', 'Requests whose KV is on the host.', ({ stats }) => stats?.requests.swapped ?? 0),
  ...['', '_total'].flatMap((ending) => [
    counter(`vllm:gpu_prefix_cache_queries${ending}`, 'Old name of vllm:prefix_cache_queries_total.', ({ books }) => books.queriedTokens),
    counter(`vllm:gpu_prefix_cache_hits${ending}`, 'Old name of vllm:prefix_cache_hits_total.', ({ books }) => books.cachedTokens),
  ]),
  gauge('vllm:avg_prompt_throughput_toks_per_s', 'Prompt tokens a second of late.', ({ rates }) => rates.prompt),
  gauge('vllm:avg_generation_throughput_toks_per_s', 'Generated tokens a second of late.', ({ rates }) => rates.generation),
  counter('vllm:num_requests_success_total', "AIBrix's name of vllm:request_success_total.", endings),
];

/** Figures of the daemon, whatever models it serves. */
export const daemonReadings: readonly Reading[] = [
  gauge('inferd_connections', 'Open connections by kind.', ({ traffic, webSockets }) => [
    { labels: { kind: 'http' }, value: Math.max(0, traffic.connections - webSockets) },
    { labels: { kind: 'websocket' }, value: webSockets },
  ]),
  counter('inferd_errors_total', 'Errors that calls were answered with, by JSON-RPC code.', ({ traffic }) =>
    [...traffic.errors].map(([code, value]) => ({ labels: { code: String(code) }, value })),
  ),
];

const share = (part = 0, whole = 0): number => (whole === 0 ? 0 : part / whole);

function usedShare({ stats }: Source): number {
  return share(stats?.kv.used_blocks, stats?.kv.total_blocks);
}

function endings({ books }: Source): readonly Sample[] {
  return Object.entries(books.endings).map(([reason, value]) => ({ labels: { finished_reason: reason }, value }));
}

/** vLLM's names of what inferd has, written as Python does. */
function cacheLabels({ cache, model, stats }: Source): Readonly<Record<string, string>> {
  const text = (value: number | null): string => (value === null ? 'None' : String(value));
  return {
    block_size: text(model?.blockSize ?? cache.block_size),
    cache_dtype: model?.kvDtype ?? cache.cache_dtype,
    enable_prefix_caching: cache.enable_prefix_caching ? 'True' : 'False',
    gpu_memory_utilization: text(cache.gpu_memory_utilization),
    num_cpu_blocks: text(stats?.kv.swap_total ?? null),
    num_gpu_blocks: text(stats?.kv.total_blocks ?? model?.totalBlocks ?? null),
    num_gpu_blocks_override: text(cache.num_gpu_blocks_override),
    sliding_window: text(cache.sliding_window),
    swap_space_bytes: text(cache.swap_space_bytes),
  };
}
