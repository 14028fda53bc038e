/** initialize: optional handshake. What the client can take is agreed here; calling it again changes the agreement. */
import { z } from 'zod';
import type { RpcDeps } from '../context.js';
import { initializeExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { limitsSchema, modelSchema } from '../schemas/info.js';
import { describeLimits, describeModel } from './describe.js';

const capabilitiesSchema = z.object({
  batchNotifications: z.boolean().optional().describe('Notifications of one engine step may come as one array in one frame.'),
  deltaHead: z.boolean().optional().describe('The first delta event of a stream carries id, created and model of the answer.'),
});

export function initializeMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'initialize',
    scope: 'any',
    summary: 'Introduces client and daemon to each other; optional.',
    params: z.object({
      client: z.object({ name: z.string().max(256), version: z.string().max(256).optional() }).nullish(),
      protocol: z.literal(1, { error: 'this daemon speaks protocol 1' }).nullish(),
      capabilities: capabilitiesSchema.nullish(),
    }),
    result: z.object({
      server: z.object({ name: z.literal('inferd'), version: z.string() }),
      protocol: z.literal(1),
      capabilities: z.object({
        streaming: z.boolean(),
        credit: z.boolean(),
        batchNotifications: z.boolean(),
        deltaHead: z.boolean(),
        cancel: z.boolean(),
        batches: z.boolean(),
      }),
      model: modelSchema,
      limits: limitsSchema,
    }),
    acts: true,
    examples: initializeExamples,
    handler: ({ capabilities }, ctx) => {
      const { session } = ctx;
      if (session !== null) {
        session.out.setBatching(capabilities?.batchNotifications ?? false);
        session.deltaHead = capabilities?.deltaHead ?? false;
      }
      const socket = session !== null;
      const known = deps.models.find();
      return {
        server: { name: 'inferd' as const, version: deps.version },
        protocol: 1 as const,
        capabilities: {
          streaming: socket,
          credit: socket,
          batchNotifications: socket && (capabilities?.batchNotifications ?? false),
          deltaHead: socket && (capabilities?.deltaHead ?? false),
          cancel: socket,
          batches: true,
        },
        model: describeModel(known, deps),
        limits: describeLimits(known, deps),
      };
    },
  });
}
