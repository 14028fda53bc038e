/** stats.get, and the same as a feed: stats.subscribe, stats.unsubscribe. */
import { z } from 'zod';
import type { RpcDeps } from '../context.js';
import { statsExamples, subscribeExamples, unsubscribeExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { statsSchema } from '../schemas/info.js';
import { needSession } from '../session.js';
import { describeStats } from './describe.js';

/** Shortest interval: the scheduler is asked for each update. */
const minIntervalMs = 100;
const maxIntervalMs = 3_600_000;
const defaultIntervalMs = 1000;

const whatFields = {
  model: z.string().nullish().describe('The default model when absent.'),
  detail: z.boolean().nullish().describe('Tell of steps, histograms and memory, too.'),
};

export function statsGetMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'stats.get',
    scope: 'metrics',
    summary: 'Load of the engine: requests, KV blocks, tokens, step times.',
    params: z.object(whatFields),
    result: statsSchema,
    examples: statsExamples,
    handler: async (what) => (await describeStats(deps, what, [])).stats,
  });
}

export function statsSubscribeMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'stats.subscribe',
    scope: 'metrics',
    summary: 'Sends stats.update notifications at an interval; answers the subscription id.',
    params: z.object({ interval_ms: z.int().min(minIntervalMs).max(maxIntervalMs).nullish(), ...whatFields }),
    result: z.string(),
    examples: subscribeExamples,
    handler: ({ interval_ms, ...what }, { session }) => {
      deps.models.find(what.model);
      let since: readonly number[] = [];
      return needSession(session).subscriptions.add('stats.update', interval_ms ?? defaultIntervalMs, async () => {
        const { stats, next } = await describeStats(deps, what, since);
        since = next;
        return stats;
      });
    },
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
