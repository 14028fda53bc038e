/** The events of a streamed answer over HTTP: OpenAI's chunks, or the error that ends them. */
import { z } from 'zod';
import { usageSchema } from './common.js';

const errorEvent = z.object({
  error: z.object({ message: z.string(), type: z.string(), param: z.string().nullable(), code: z.string().nullable() }),
});

/** `choice`: what one element of `choices` looks like. */
export function eventSchema<C extends z.ZodType>(object: string, choice: C) {
  const chunk = z.object({
    id: z.string().describe('The same in all chunks of an answer.'),
    object: z.literal(object),
    created: z.int().describe('Seconds since the epoch.'),
    model: z.string(),
    choices: z.array(choice).describe('Empty in the last chunk, which has the usage.'),
    usage: usageSchema.nullish().describe('With stream_options.include_usage: null, save in the last chunk.'),
  });
  return z.union([chunk, errorEvent]);
}

/** `stream` over HTTP, where there are no progress tokens. */
export const httpStream = z.boolean().nullish().describe('Answer with server-sent events.');
