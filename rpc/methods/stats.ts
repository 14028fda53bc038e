/** stats.get, and the same as a feed: stats.subscribe, stats.unsubscribe. */
import { z } from 'zod';
import type { RpcDeps } from '../context.js';
import { statsExamples, subscribeExamples, unsubscribeExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { emptyParams } from '../schemas/common.js';
import { statsSchema } from '../schemas/info.js';
import { needSession } from '../session.js';
import { describeStats } from './describe.js';

/** Shortest interval: the scheduler is asked for each update. */
const minIntervalMs = 100;
const maxIntervalMs = 3_600_000;
const defaultIntervalMs = 1000;

export function statsGetMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'stats.get',
    scope: 'metrics',
    summary: 'Load of the engine: requests, KV blocks, tokens, step times.',
    params: emptyParams,
    result: statsSchema,
    examples: statsExamples,
    handler: () => describeStats(deps),
  });
}

export function statsSubscribeMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'stats.subscribe',
    scope: 'metrics',
    summary: 'Sends stats.update notifications at an interval; answers the subscription id.',
    params: z.object({ interval_ms: z.int().min(minIntervalMs).max(maxIntervalMs).nullish() }),
    result: z.string(),
    examples: subscribeExamples,
    handler: ({ interval_ms }, { session }) =>
      needSession(session).subscriptions.add('stats.update', interval_ms ?? defaultIntervalMs, () => describeStats(deps)),
  });
}

export function statsUnsubscribeMethod() {
  return defineMethod({
    name: 'stats.unsubscribe',
    scope: 'metrics',
    summary: 'Ends a subscription; answers whether there was one.',
    params: z.object({ subscription: z.string() }),
    result: z.boolean(),
    acts: true,
    examples: unsubscribeExamples,
    handler: ({ subscription }, { session }) => needSession(session).subscriptions.remove(subscription),
  });
}
