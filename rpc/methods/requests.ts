/**
 * requests.list and requests.cancel: the caller's own requests; with admin scope everybody's. A call with several prompts has one row
 * per prompt, all with the id of its answer.
 */
import { z } from 'zod';
import type { CallContext, LiveRequest, RpcDeps } from '../context.js';
import { requestsCancelExamples, requestsListExamples } from '../examples/daemon.js';
import type { EndedAnswer } from '../insight/ended-answers.js';
import { defineMethod } from '../method.js';
import { requestRowSchema } from '../schemas/info.js';
import { endedRowSchema } from '../schemas/insight.js';

/** Whether the caller may see and cancel a request. */
export function mayTouch(request: LiveRequest | undefined, ctx: CallContext): boolean {
  return ctx.scopes.has('admin') || (request !== undefined && request.session !== null && request.session === ctx.session);
}

/** The same of one that has ended. */
export function mayTouchEnded({ session }: EndedAnswer, ctx: CallContext): boolean {
  return ctx.scopes.has('admin') || (session !== null && ctx.session !== null && session.deref() === ctx.session);
}

export function requestsListMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'requests.list',
    scope: 'any',
    summary: 'Requests that run or wait.',
    params: z.object({ ended: z.boolean().nullish().describe('List the last ones that ended, too.') }),
    result: z.object({
      requests: z.array(requestRowSchema),
      ended: z.array(endedRowSchema).optional().describe('Newest first, scheduler.kept_timelines at most.'),
    }),
    examples: requestsListExamples,
    handler: ({ ended }, ctx) => ({
      requests: deps.models
        .loaded()
        .flatMap(({ engine, config }) => engine.requests().map((row) => ({ row, several: config.parallel.data_parallel_size > 1 })))
        .filter(({ row }) => mayTouch(ctx.live.get(row.id), ctx))
        .map(({ row, several }) => ({
          request_id: ctx.live.get(row.id)?.answerId ?? String(row.id),
          state: row.state,
          ...(several && row.group !== null ? { engine: row.group } : {}),
          age_s: Math.round(row.ageMs) / 1000,
          prompt_tokens: row.promptTokens,
          completion_tokens: row.generatedTokens,
        })),
      ...(ended === true
        ? {
            ended: ctx.ended
              .list()
              .filter((one) => mayTouchEnded(one, ctx))
              .map(endedRow),
          }
        : {}),
    }),
  });
}

function endedRow(one: EndedAnswer): z.output<typeof endedRowSchema> {
  return {
    request_id: one.answerId,
    model: one.model,
    state: one.state,
    duration_s: Math.round(one.durationMs) / 1000,
    ended_at: new Date(one.endedAt).toISOString(),
    prompt_tokens: one.promptTokens,
    completion_tokens: one.completionTokens,
  };
}

export function requestsCancelMethod() {
  return defineMethod({
    name: 'requests.cancel',
    scope: 'any',
    summary: 'Ends a request; its own call is answered with -32800.',
    params: z.object({ request_id: z.string().describe('As in requests.list.') }),
    result: z.object({ request_id: z.string(), cancelled: z.boolean().describe('False when there is no such request.') }),
    acts: true,
    examples: requestsCancelExamples,
    handler: ({ request_id }, ctx) => {
      const found = [...ctx.live.values()].find((request) => request.answerId === request_id && mayTouch(request, ctx));
      found?.cancel();
      return { request_id, cancelled: found !== undefined };
    },
  });
}
