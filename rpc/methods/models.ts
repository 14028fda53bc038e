/** models.list and models.get: the models this daemon serves. */
import { z } from 'zod';
import type { RpcDeps } from '../context.js';
import { modelsGetExamples, modelsListExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { emptyParams } from '../schemas/common.js';
import { modelSchema } from '../schemas/info.js';
import { describeModel } from './describe.js';

export function modelsListMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'models.list',
    summary: 'The models that can be asked.',
    params: emptyParams,
    result: z.object({ object: z.literal('list'), data: z.array(modelSchema) }),
    http: { verb: 'GET', path: '/v1/models' },
    examples: modelsListExamples,
    handler: () => ({ object: 'list' as const, data: deps.models.list().map((known) => describeModel(known, deps)) }),
  });
}

export function modelsGetMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'models.get',
    summary: 'One model: context length, type, size, state.',
    params: z.object({ model: z.string() }),
    result: modelSchema,
    http: { verb: 'GET', path: '/v1/models/{model}', params: ({ tail }) => ({ model: tail }) },
    examples: modelsGetExamples,
    handler: ({ model }) => {
      return describeModel(deps.models.find(model), deps);
    },
  });
}
