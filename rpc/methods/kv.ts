/** kv.map: a picture of the KV pool. The scheduler draws it between two plans. */
import { z } from 'zod';
import { InferdError } from '../../actors/messages/errors.js';
import type { RpcDeps } from '../context.js';
import { kvMapExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { kvMapSchema } from '../schemas/insight.js';
import { mayTouch } from './requests.js';

const maxCells = 16_384;
const defaultCells = 4096;

export function kvMapMethod({ models }: RpcDeps) {
  return defineMethod({
    name: 'kv.map',
    scope: 'metrics',
    summary: 'Whose each block of the KV pool is.',
    params: z.object({
      model: z.string().nullish().describe('The default model when absent.'),
      cells: z.int().min(1).max(maxCells).nullish().describe(`Most cells of the picture; ${defaultCells} by default.`),
    }),
    result: kvMapSchema,
    examples: kvMapExamples,
    async handler({ model: name, cells }, ctx) {
      const { engine, model } = models.find(name);
      if (engine === null) throw new InferdError('model_loading', `The model "${model.name}" is not loaded`);
      const map = await engine.ask('kvMap', { maxCells: cells ?? defaultCells });
      return {
        model: model.name,
        block_size: engine.model()?.blockSize ?? 0,
        total_blocks: map.totalBlocks,
        blocks_per_cell: map.blocksPerCell,
        cells: Buffer.from(map.cells).toString('base64'),
        owners: map.owners.map(({ id, blocks }) => {
          const request = ctx.live.get(id);
          return { request_id: request !== undefined && mayTouch(request, ctx) ? request.answerId : null, blocks };
        }),
      };
    },
  });
}
