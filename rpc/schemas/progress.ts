/** Params of $/progress: the events of a streaming call. */
import { z } from 'zod';

const base = { token: z.union([z.string(), z.number()]), seq: z.int().describe('Counts from 0 without gaps.') };
const prompt = z.int().optional().describe('Which prompt, when the call has several.');

/** Of a call whose model is being loaded, and of models.load. */
export const loadingSchema = z.object({
  ...base,
  kind: z.literal('loading').describe('The model is being loaded.'),
  phase: z.string().describe('tokenizer, weights (bytes), kv or warmup.'),
  done: z.number(),
  total: z.number(),
});

/** `choice`: what one element of a delta's choices looks like. */
export function progressSchema<C extends z.ZodType>(choice: C) {
  return z.discriminatedUnion('kind', [
    z.object({ ...base, kind: z.literal('queued'), position: z.int().describe('0 is next.'), prompt }),
    loadingSchema,
    z.object({ ...base, kind: z.literal('prefill'), done: z.int(), total: z.int(), prompt }),
    z.object({
      ...base,
      kind: z.literal('delta'),
      choices: z.array(choice),
      tokens: z.int().optional().describe('Credit that this event used; present when credit was given.'),
      id: z.string().optional(),
      created: z.int().optional(),
      model: z.string().optional(),
    }),
  ]);
}
