/**
 * requests.list and requests.cancel: the caller's own requests; with admin scope everybody's. A call with several prompts has one row
 * per prompt, all with the id of its answer.
 */
import { z } from 'zod';
import type { CallContext, LiveRequest, RpcDeps } from '../context.js';
import { requestsCancelExamples, requestsListExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { emptyParams } from '../schemas/common.js';
import { requestRowSchema } from '../schemas/info.js';

function mayTouch(request: LiveRequest | undefined, ctx: CallContext): boolean {
  return ctx.scopes.has('admin') || (request !== undefined && request.session !== null && request.session === ctx.session);
}

export function requestsListMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'requests.list',
    scope: 'any',
    summary: 'Requests that run or wait.',
    params: emptyParams,
    result: z.object({ requests: z.array(requestRowSchema) }),
    examples: requestsListExamples,
    handler: (_params, ctx) => ({
      requests: deps.models
        .loaded()
        .flatMap(({ engine }) => engine.requests())
        .filter((row) => mayTouch(ctx.live.get(row.id), ctx))
        .map((row) => ({
          request_id: ctx.live.get(row.id)?.answerId ?? String(row.id),
          state: row.state,
          age_s: Math.round(row.ageMs) / 1000,
          prompt_tokens: row.promptTokens,
          completion_tokens: row.generatedTokens,
        })),
    }),
  });
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
