/** Results that describe the daemon, its model and its load. */
import { z } from 'zod';
import { statsDetailSchema } from './insight.js';

export const limitsSchema = z.object({
  max_message_bytes: z.int(),
  max_requests_per_connection: z.int(),
  max_batch_members: z.int(),
  max_model_len: z.int().describe('Prompt plus answer, tokens.'),
  max_input_length: z.int(),
  max_total_tokens: z.int(),
  max_n: z.int(),
  max_best_of: z.int(),
  max_stop_sequences: z.int(),
  max_top_logprobs: z.int(),
  max_reported_logprobs: z.int().describe('Of one answer, alternatives included.'),
  max_embedding_inputs: z.int().describe('Of one call.'),
});

export const modelSchema = z.object({
  id: z.string(),
  object: z.literal('model'),
  created: z.int().describe('Seconds since the epoch when the daemon started.'),
  owned_by: z.literal('inferd'),
  root: z.string().describe('Its name; of an adapter its folder.'),
  parent: z.string().nullable().describe('The model that an adapter belongs to; null for a model.'),
  max_model_len: z.int().describe('Context length: prompt plus answer, tokens.'),
  architecture: z.string(),
  format: z.string().describe('What its weights are stored in, such as "GGUF Q4_K_M", "GPTQ int4" or "BF16".'),
  size_bytes: z.int().describe('Of the weight files.'),
  vocab_size: z.int(),
  state: z.enum(['starting', 'ready', 'restarting', 'draining', 'failed', 'stopped', 'unloaded']),
  pinned: z.boolean().describe('Stays once it is loaded; models.unload alone unloads it.'),
  last_used: z.int().nullable().describe('Seconds since the epoch; null while it is not loaded.'),
  memory_bytes: z.int().nullable().describe('Weights, keys and values; null while it is not loaded.'),
  failure: z.string().nullable().describe('Why it failed, one sentence.'),
  /** The rest is known while it is loaded. */
  dtype: z.string().nullable(),
  kv_dtype: z.string().nullable(),
  backend: z.string().nullable(),
  parameters: z.int().nullable(),
});

const counts = <K extends string>(...keys: readonly K[]) =>
  z.object(Object.fromEntries(keys.map((k) => [k, z.number()])) as { [P in K]: z.ZodNumber }); // proof: one entry per key

/** What one engine group, or all of them together, has to do and has done. */
const loadSchema = z.object({
  requests: counts('running', 'waiting', 'swapped', 'finished_total', 'aborted_total', 'preempted_total'),
  kv: counts('block_size', 'total_blocks', 'used_blocks', 'cached_blocks', 'free_blocks', 'swap_total', 'swap_used'),
  tokens: counts('prompt_total', 'generated_total', 'prefix_hit_total'),
  step: counts('count', 'p50_ms', 'p99_ms'),
  speculation: counts('drafts_total', 'draft_tokens_total', 'accepted_tokens_total')
    .extend({
      accepted_per_position: z.array(z.int()).describe('Drafts that were accepted, by their place.'),
      accepted_histogram: z.array(z.int()).describe('Samples by how many of their drafts were accepted, from 0 on.'),
    })
    .optional()
    .describe('Where tokens are drafted.'),
});

export const statsSchema = z.object({
  ...loadSchema.shape,
  groups: z
    .array(z.object({ engine: z.int().describe('As the label "engine" of /metrics.'), ...loadSchema.shape }))
    .optional()
    .describe('Of each engine group that is up, where there are several (parallel.data_parallel_size); the rest are their sums.'),
  engine: z.object({ state: z.string(), healthy: z.boolean(), uptime_s: z.number() }),
  memory: z.object({ rss_bytes: z.int(), heap_used_bytes: z.int(), weight_bytes: z.int() }),
  detail: statsDetailSchema.optional().describe('Where it was asked for.'),
});
export type Stats = z.output<typeof statsSchema>;

export const requestRowSchema = z.object({
  request_id: z.string().describe('Id of the answer; takes requests.cancel.'),
  state: z.enum(['encoding', 'queued', 'running']),
  engine: z.int().optional().describe('The engine group that has it, where there are several.'),
  age_s: z.number(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
});
