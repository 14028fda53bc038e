/** embeddings.create: body and answer in OpenAI's shapes. */
import { z } from 'zod';
import { maxTokenCount, type RequestLimits } from './common.js';
import { promptSchema } from './prompt.js';

/** Numbers that an embedding of any model may have. */
const maxDimensions = 2 ** 20;
const maxInt32 = 2 ** 31 - 1;

const within = (min: number, max: number) => {
  const range = { error: `must be an integer from ${min} to ${max}` };
  return z.int(range).min(min, range).max(max, range).nullish();
};

export function embeddingBody({ maxEmbeddingInputs }: RequestLimits) {
  return z.object({
    input: promptSchema(maxEmbeddingInputs, { noEmpty: true }),
    model: z.string().min(1, 'must not be empty').nullish().describe('Must be the served model when given.'),
    encoding_format: z
      .enum(['float', 'base64'])
      .nullish()
      .describe('float, the default: a list of numbers. base64: the same as little-endian float32.'),
    dimensions: within(1, maxDimensions).describe('Keep only the first so many numbers, normalised again; at most those of the model.'),
    add_special_tokens: z.boolean().nullish().describe('Encode texts with the special tokens of the model; true by default.'),
    truncate_prompt_tokens: within(1, maxTokenCount).describe('Keep only the last so many tokens of each input.'),
    priority: z.int().min(-maxInt32).max(maxInt32).nullish().describe('Smaller runs first when the policy is priority.'),
    user: z.string().nullish().describe('Accepted and not used.'),
  });
}

const embedding = z.object({
  object: z.literal('embedding'),
  index: z.int().describe('Of the input.'),
  embedding: z.union([z.array(z.number()), z.string()]).describe('Of length 1 in the Euclidean norm.'),
});

export const embeddingList = z.object({
  object: z.literal('list'),
  data: z.array(embedding),
  model: z.string(),
  usage: z.object({
    prompt_tokens: z.int(),
    total_tokens: z.int(),
    prompt_tokens_details: z.object({ cached_tokens: z.int() }),
  }),
});
export type EmbeddingList = z.output<typeof embeddingList>;
