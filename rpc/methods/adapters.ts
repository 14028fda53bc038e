/** adapters.load, adapters.unload, adapters.list: fine-tuned variants (LoRA) of a loaded model, which requests name as their model. */
import { z } from 'zod';
import type { EngineAdapters, LoadedAdapter } from '../../actors/client-types.js';
import { InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { RpcDeps } from '../context.js';
import {
  adaptersListExamples,
  adaptersLoadExamples,
  adaptersUnloadExamples,
  loadFaceExamples,
  unloadFaceExamples,
} from '../examples/daemon.js';
import { defineMethod, type HttpInput } from '../method.js';
import { type Served, withEngine } from '../models.js';

const nameParam = z
  .string()
  .regex(/^[A-Za-z0-9][\w./:@+-]{0,255}$/, 'must be a name: letters, digits and ./:@+-_, at most 256')
  .describe('By which requests ask for it, as their model.');

const modelParam = z
  .string()
  .min(1, 'must not be empty')
  .nullish()
  .describe('The model that it belongs to; the default one when not given.');

export const adapterSchema = z.object({
  name: z.string(),
  path: z.string().describe('Its folder.'),
  parent: z.string().describe('The model that it belongs to.'),
  rank: z.int(),
  modules: z.int().describe('Weights of the model that it adds to.'),
  state: z.enum(['loaded', 'unloaded']),
});

const described = ({ name, path, rank, modules }: LoadedAdapter, parent: string, state: 'loaded' | 'unloaded') => {
  return { name, path, parent, rank, modules, state };
};

/** @throws InferdError unsupported */
function adaptersOf({ engine, model }: Served): EngineAdapters {
  if (engine.adapters !== undefined) return engine.adapters;
  throw new InferdError('unsupported', `Adapters are off for the model "${model.name}"; set lora.enabled = true`);
}

/** Whether requests can name it already: a model, or an adapter of another one. */
function isTaken(name: string, { models }: RpcDeps, own: EngineAdapters): boolean {
  if (own.find(name) !== null) return false;
  try {
    models.find(name);
    return true;
  } catch (error) {
    if (error instanceof InferdError && error.failure.kind === 'model_not_found') return false;
    throw error;
  }
}

const loadParams = z.object({
  name: nameParam,
  path: z
    .string()
    .min(1, 'must not be empty')
    .max(4096)
    .describe("A folder in PEFT's layout, inside of one of lora.folders; or its path from there."),
  load_inplace: z.boolean().nullish().describe('Take the place of an adapter of that name. Its requests go on with what they began with.'),
  model: modelParam,
});

export function adaptersLoadMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'adapters.load',
    scope: 'admin',
    summary: 'Loads an adapter (LoRA), which requests may then name as their model.',
    params: loadParams,
    result: adapterSchema,
    examples: adaptersLoadExamples,
    http: {
      verb: 'POST',
      path: '/v1/load_lora_adapter',
      params: faceParams,
      answer: (result) => `Success: LoRA adapter '${(result as { name: string }).name}' added successfully.`,
      shape: {
        params: z.object({
          lora_name: nameParam,
          lora_path: loadParams.shape.path,
          load_inplace: loadParams.shape.load_inplace,
          model: modelParam,
        }),
        result: z.string(),
        examples: loadFaceExamples,
      },
    },
    acts: true,
    work: true,
    fails: ['model_not_found', 'unsupported', 'request_failed'],
    handler: ({ name, path, load_inplace: inPlace, model }, ctx) =>
      withEngine(deps.models, model, ctx, async (served) => {
        const adapters = adaptersOf(served);
        if (isTaken(name, deps, adapters)) throw invalidParams([{ path: 'name', message: `is that of a model or of another adapter` }]);
        return described(await adapters.load(name, path, inPlace ?? false), served.model.name, 'loaded');
      }),
  });
}

export function adaptersUnloadMethod({ models }: RpcDeps) {
  return defineMethod({
    name: 'adapters.unload',
    scope: 'admin',
    summary: 'Unloads an adapter: new requests do not find it, those that use it end first.',
    params: z.object({ name: nameParam }),
    result: adapterSchema,
    examples: adaptersUnloadExamples,
    http: {
      verb: 'POST',
      path: '/v1/unload_lora_adapter',
      params: faceParams,
      answer: (result) => `Success: LoRA adapter '${(result as { name: string }).name}' removed successfully.`,
      shape: { params: z.object({ lora_name: nameParam }), result: z.string(), examples: unloadFaceExamples },
    },
    acts: true,
    fails: ['model_not_found'],
    handler: ({ name }) => {
      const served = models.loaded().find(({ engine }) => engine.adapters?.find(name));
      if (served === undefined) throw new InferdError('model_not_found', `There is no adapter "${name}" here; adapters.list shows all`);
      return described(adaptersOf(served).unload(name), served.model.name, 'unloaded');
    },
  });
}

export function adaptersListMethod({ models }: RpcDeps) {
  return defineMethod({
    name: 'adapters.list',
    summary: 'The adapters that requests may name.',
    params: z.object({}),
    result: z.object({ data: z.array(adapterSchema) }),
    examples: adaptersListExamples,
    handler: () => ({
      data: models
        .loaded()
        .flatMap(({ engine, model }) => engine.adapters?.list().map((one) => described(one, model.name, 'loaded')) ?? []),
    }),
  });
}

/** vLLM's names. */
function faceParams({ body }: HttpInput): unknown {
  const { lora_name: name, lora_path: path, ...others } = (body ?? {}) as Readonly<Record<string, unknown>>; // proof: a body is an object
  return { ...others, name, path };
}
