/** ping, daemon.info, daemon.drain, rpc.discover. */
import { z } from 'zod';
import type { RpcDeps } from '../context.js';
import { discoverExamples, drainExamples, infoExamples, pingExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { emptyParams, emptyResult } from '../schemas/common.js';
import { limitsSchema, modelSchema } from '../schemas/info.js';
import { describeLimits, describeModel, uptimeSeconds } from './describe.js';

export function pingMethod() {
  return defineMethod({
    name: 'ping',
    scope: 'any',
    summary: 'Answers {} at once.',
    params: emptyParams,
    result: emptyResult,
    examples: pingExamples,
    handler: () => ({}),
  });
}

export function daemonInfoMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'daemon.info',
    scope: 'any',
    summary: 'Versions, limits and state of the daemon.',
    params: emptyParams,
    result: z.object({
      name: z.literal('inferd'),
      version: z.string(),
      protocol: z.literal(1),
      node: z.string(),
      platform: z.string(),
      pid: z.int(),
      started_at: z.string().describe('ISO 8601.'),
      uptime_s: z.number(),
      state: z.string(),
      healthy: z.boolean(),
      model: modelSchema,
      limits: limitsSchema,
    }),
    examples: infoExamples,
    handler: () => {
      const known = deps.models.find();
      return {
        name: 'inferd' as const,
        version: deps.version,
        protocol: 1 as const,
        node: process.version,
        platform: `${process.platform}-${process.arch}`,
        pid: process.pid,
        started_at: new Date(deps.startedAt).toISOString(),
        uptime_s: uptimeSeconds(deps.startedAt),
        state: known.engine?.state() ?? 'ready',
        healthy: deps.models.loaded().every(({ engine }) => engine.healthy()),
        model: describeModel(known, deps),
        limits: describeLimits(known, deps),
      };
    },
  });
}

export function daemonDrainMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'daemon.drain',
    summary: 'Lets running requests finish, refuses new ones, then stops the daemon.',
    params: emptyParams,
    result: emptyResult,
    acts: true,
    scope: 'admin',
    examples: drainExamples,
    handler: () => {
      // After this turn, so that the answer is on its way before connections are told to close.
      setImmediate(() => deps.onDrain());
      return {};
    },
  });
}

export function discoverMethod(document: () => object) {
  return defineMethod({
    name: 'rpc.discover',
    scope: 'any',
    summary: 'This description, as an OpenRPC document.',
    params: emptyParams,
    result: z.looseObject({ openrpc: z.string() }),
    examples: discoverExamples,
    handler: () => document() as { openrpc: string }, // proof: openrpcDocument sets it
  });
}
