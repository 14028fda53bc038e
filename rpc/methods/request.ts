/** requests.get: what happened to one request, while it runs and for a while after. */
import { z } from 'zod';
import type { RequestId } from '../../actors/messages/ids.js';
import type { Mark, Timeline } from '../../actors/messages/timeline.js';
import type { CallContext, RpcDeps } from '../context.js';
import { requestsGetExamples } from '../examples/daemon.js';
import { maxPromptsTold } from '../insight/ended-answers.js';
import { defineMethod } from '../method.js';
import { type MarkRow, requestSchema } from '../schemas/insight.js';
import { mayTouch, mayTouchEnded } from './requests.js';

export function requestsGetMethod({ models }: RpcDeps) {
  return defineMethod({
    name: 'requests.get',
    scope: 'any',
    summary: 'What happened to a request, from the queue to its last token.',
    params: z.object({ request_id: z.string().describe('As in requests.list.') }),
    result: z.object({ request: requestSchema.nullable().describe('null: it neither runs nor waits, and is not remembered.') }),
    examples: requestsGetExamples,
    async handler({ request_id }, ctx) {
      const found = find(request_id, ctx);
      if (found === null) return { request: null };
      const engine = models.loaded().find(({ model }) => model.name === found.model)?.engine;
      // An engine that is gone has forgotten what happened.
      const timelines = await Promise.all(found.ids.map((id) => engine?.ask('timeline', { id }).catch(() => null) ?? null));
      const prompts = timelines.filter((timeline) => timeline !== null).map(promptOf);
      return { request: { request_id, model: found.model, state: found.state, prompts } };
    },
  });
}

interface Found {
  readonly model: string;
  readonly state: 'running' | 'finished' | 'cancelled' | 'failed';
  readonly ids: readonly RequestId[];
}

function find(answerId: string, ctx: CallContext): Found | null {
  const live = [...ctx.live].filter(([, request]) => request.answerId === answerId && mayTouch(request, ctx));
  const [first] = live;
  if (first !== undefined) return { model: first[1].model, state: 'running', ids: live.slice(0, maxPromptsTold).map(([id]) => id) };
  const ended = ctx.ended.find(answerId);
  return ended !== undefined && mayTouchEnded(ended, ctx) ? ended : null;
}

function promptOf({ arrivalMs, promptTokens, generatedTokens, marks, leftOut }: Timeline) {
  return {
    arrived_at: new Date(arrivalMs).toISOString(),
    prompt_tokens: promptTokens,
    completion_tokens: generatedTokens,
    marks: marks.map((mark) => markOf(mark, arrivalMs)),
    marks_left_out: leftOut,
  };
}

function markOf(mark: Mark, arrivalMs: number): MarkRow {
  const since = (ms: number): number => Math.round((ms - arrivalMs) * 1000) / 1000;
  const at = { kind: mark.kind, at_ms: since(mark.ms) };
  switch (mark.kind) {
    case 'prefill':
      return { ...at, until_ms: since(mark.untilMs), sequence: mark.sequence, from: mark.from, to: mark.to };
    case 'started':
      return { ...at, cached_tokens: mark.cachedTokens };
    case 'preempted':
      return { ...at, sequence: mark.sequence, how: mark.how };
    case 'resumed':
      return { ...at, sequence: mark.sequence };
    case 'sequence_ended':
      return { ...at, sequence: mark.sequence, tokens: mark.tokens };
    case 'ended':
      return { ...at, how: mark.how };
    default:
      return at;
  }
}
