/** models.list, models.get, models.load, models.unload: the models this daemon can serve, and which of them are loaded. */
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { StartProgress } from '../../actors/client-types.js';
import { InferdError } from '../../actors/messages/errors.js';
import { cacheSource } from '../../config/models/model-folder.js';
import type { RpcDeps } from '../context.js';
import { modelsGetExamples, modelsListExamples, modelsLoadExamples, modelsUnloadExamples } from '../examples/daemon.js';
import { streamChoice } from '../generation/stream-option.js';
import { defineMethod } from '../method.js';
import type { KnownModel } from '../models.js';
import { emptyParams, type Usage } from '../schemas/common.js';
import { streamSchema } from '../schemas/generation.js';
import { modelSchema } from '../schemas/info.js';
import { loadingSchema } from '../schemas/progress.js';
import { describeModel } from './describe.js';

export function modelsListMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'models.list',
    summary: 'The models that can be asked, and which of them are loaded; the default one first.',
    params: emptyParams,
    result: z.object({ object: z.literal('list'), data: z.array(modelSchema) }),
    http: { verb: 'GET', path: '/v1/models' },
    examples: modelsListExamples,
    handler: () => ({ object: 'list' as const, data: deps.models.list().flatMap((known) => withAdapters(known, deps)) }),
  });
}

/** A model, and behind it the adapters that it can be asked for as. */
function withAdapters(known: KnownModel, deps: RpcDeps) {
  const adapters = known.engine?.adapters?.list() ?? [];
  return [known, ...adapters.map((adapter) => ({ ...known, residence: known.residence, adapter }))].map((one) => describeModel(one, deps));
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

const nameParam = z.string().min(1, 'must not be empty').describe('As in models.list.');

const revisionParam = z
  .string()
  .regex(/^[A-Za-z0-9][\w./-]{0,127}$/, 'must be a branch, a tag or a commit')
  .nullish()
  .describe('Branch, tag or commit in the Hugging Face cache. The model is then named MODEL@REVISION, unless it is served at that one.');

/** The name of a model at a revision: its own where it is served at that one. */
function nameAt(model: string, revision: string | null | undefined, deps: RpcDeps): string {
  if (revision === undefined || revision === null || servedAt(model, deps) === revision) return model;
  const [id = model, ...quantization] = model.split(':');
  return [`${id}@${revision}`, ...quantization].join(':');
}

/** Null for what has no revisions. */
function servedAt(model: string, { models }: RpcDeps): string | null {
  try {
    const known = models.find(model);
    return known.model.source === cacheSource ? known.config.inference.revision : null;
  } catch (error) {
    if (error instanceof InferdError) return null;
    throw error;
  }
}

/** Nothing is generated. */
const noUsage = (): Usage => {
  throw new InferdError('internal');
};

/** What a stream of models.load calls itself. */
const loadObject = 'model.load';

export function modelsLoadMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'models.load',
    scope: 'admin',
    summary: 'Loads a model; what nobody uses makes room for it. Answers when it is loaded.',
    params: z.object({
      model: nameParam,
      revision: revisionParam,
      stream: streamSchema.nullish().describe('Send $/progress notifications while it is loaded.'),
    }),
    result: modelSchema,
    progress: loadingSchema,
    examples: modelsLoadExamples,
    acts: true,
    work: true,
    ownsCancel: true,
    fails: ['model_not_found', 'out_of_memory'],
    handler: async ({ model: asked, revision, stream }, ctx) => {
      const model = nameAt(asked, revision, deps);
      const open = streamChoice({ stream }, ctx);
      const head = { id: `load-${randomUUID()}`, object: loadObject, created: Math.floor(Date.now() / 1000), model };
      const sink = open?.(head, () => {}, noUsage) ?? null;
      const onLoading = ({ phase, done, total }: StartProgress): void => {
        if (sink !== null && !sink.full) sink.event({ kind: 'loading', phase, done, total });
      };
      try {
        return describeModel(await deps.models.load(model, { cancellation: ctx.cancellation, onLoading }), deps);
      } finally {
        sink?.close();
      }
    },
  });
}

export function modelsUnloadMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'models.unload',
    scope: 'admin',
    summary: 'Unloads a model when the requests that use it have ended; new ones wait until it is loaded again.',
    params: z.object({ model: nameParam, revision: revisionParam }),
    result: modelSchema,
    examples: modelsUnloadExamples,
    acts: true,
    fails: ['model_not_found', 'request_failed'],
    handler: async ({ model, revision }) => describeModel(await deps.models.unload(nameAt(model, revision, deps)), deps),
  });
}
