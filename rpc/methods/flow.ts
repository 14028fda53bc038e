/**
 * $/cancelRequest and $/credit: how a client steers its calls. Both are sent as notifications; as requests they answer null.
 * Unknown ids are ignored, because the message may have crossed the response.
 */
import { z } from 'zod';
import { cancelExamples, creditExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { idSchema } from '../schemas/common.js';

export function cancelRequestMethod() {
  return defineMethod({
    name: '$/cancelRequest',
    scope: 'any',
    summary: 'Cancels an unanswered call of this connection; the call is answered with -32800.',
    params: z.object({ id: idSchema }),
    result: z.null(),
    acts: true,
    examples: cancelExamples,
    handler: ({ id }, ctx) => {
      ctx.calls.cancel(id);
      return null;
    },
  });
}

export function creditMethod() {
  return defineMethod({
    name: '$/credit',
    scope: 'any',
    summary: 'Grants a stream n more tokens.',
    params: z.object({
      token: idSchema,
      n: z
        .int()
        .min(1)
        .max(2 ** 31),
    }),
    result: z.null(),
    acts: true,
    examples: creditExamples,
    handler: ({ token, n }, { session }) => {
      session?.grant(token, n);
      return null;
    },
  });
}
