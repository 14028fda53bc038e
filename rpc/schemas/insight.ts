/** Shapes for those who look into the daemon: steps, histograms, the KV pool, timelines of requests. */
import { z } from 'zod';

const histogramSchema = z.object({
  edges: z.array(z.number()).describe('Ascending.'),
  counts: z.array(z.int()).describe('One for each edge, and one for what is above all; not added up.'),
  sum: z.number(),
});

const memoryOfModelSchema = z.object({
  id: z.string(),
  state: z.string(),
  weight_bytes: z.int(),
  kv_bytes: z.int().describe('The whole pool.'),
  kv_used_bytes: z.int().describe('Held by live requests.'),
});

/** What stats.get and stats.update have with `detail`. */
export const statsDetailSchema = z.object({
  first_token_seconds: histogramSchema.nullable().describe('Time to the first token. null: nobody keeps books.'),
  step_seconds: histogramSchema.describe('Time of a step on the device.'),
  step_tokens: histogramSchema,
  steps: z
    .object({
      at_ms: z.array(z.number()).describe('When each ended, milliseconds since the epoch.'),
      exec_ms: z.array(z.number()),
      prompt_tokens: z.array(z.int()),
      decode_tokens: z.array(z.int()),
      running: z.array(z.int()).describe('Requests.'),
    })
    .describe('Steps since the last update, at most 1024, a column each; those of stats.get are the last ones there are.'),
  models: z.array(memoryOfModelSchema).describe('Memory of the loaded models.'),
});
export type StatsDetail = z.output<typeof statsDetailSchema>;

export const kvMapSchema = z.object({
  model: z.string(),
  block_size: z.int().describe('Tokens.'),
  total_blocks: z.int(),
  blocks_per_cell: z.int().describe('Blocks side by side that a cell stands for; it shows the busiest: held, cached, free.'),
  cells: z
    .string()
    .describe(
      'Base64, a byte a cell: 0 free, 1 cached, 2 shared by sequences, 3 and more: the owner with that number less 3, 255: further owners.',
    ),
  owners: z.array(
    z.object({
      request_id: z.string().nullable().describe('null: of somebody else.'),
      blocks: z.int().describe('Shared ones count for each owner.'),
    }),
  ),
});

export const endedRowSchema = z.object({
  request_id: z.string().describe('Id of the answer; takes requests.get.'),
  model: z.string(),
  state: z.enum(['finished', 'cancelled', 'failed']),
  duration_s: z.number(),
  ended_at: z.string().describe('ISO 8601.'),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
});

const markSchema = z.object({
  kind: z.enum(['queued', 'started', 'prefill', 'first_token', 'preempted', 'resumed', 'sequence_ended', 'ended']),
  at_ms: z.number().describe('Since the prompt came to the daemon.'),
  until_ms: z.number().optional().describe('Of a chunk of prefill: when its result was there.'),
  sequence: z.int().optional(),
  from: z.int().optional().describe('Of a chunk: the first token.'),
  to: z.int().optional().describe('The token after its last.'),
  cached_tokens: z.int().optional(),
  tokens: z.int().optional().describe('Generated.'),
  how: z.enum(['swap', 'recompute', 'finished', 'aborted', 'refused']).optional(),
});
export type MarkRow = z.output<typeof markSchema>;

export const requestSchema = z.object({
  request_id: z.string(),
  model: z.string(),
  state: z.enum(['running', 'finished', 'cancelled', 'failed']),
  prompts: z
    .array(
      z.object({
        arrived_at: z.string().describe('ISO 8601.'),
        prompt_tokens: z.int(),
        completion_tokens: z.int().describe('Of all sequences.'),
        marks: z.array(markSchema).describe('In order.'),
        marks_left_out: z.int(),
      }),
    )
    .describe('One each; without those that never came to the scheduler, and those that it has forgotten.'),
});
