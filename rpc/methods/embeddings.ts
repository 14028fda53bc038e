/** embeddings.create: a vector for each of one or more texts. */
import { randomUUID } from 'node:crypto';
import { InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { GenerationParams } from '../../actors/messages/requests.js';
import { defaultSampling } from '../../actors/messages/sampling.js';
import type { RpcDeps } from '../context.js';
import { EmbeddingCall } from '../embeddings/call.js';
import { embeddingOf, encoded, keptBytes } from '../embeddings/vector.js';
import { embeddingExamples } from '../examples/embeddings.js';
import { tooManyAnswers } from '../holding.js';
import { defineMethod, fromBody } from '../method.js';
import { type KnownModel, servedName } from '../models.js';
import type { RequestLimits } from '../schemas/common.js';
import { type EmbeddingList, embeddingBody, embeddingList } from '../schemas/embedding.js';
import { promptInputs } from '../schemas/prompt.js';

/** Nothing is sampled: what is not said of pooling does nothing. */
const noGeneration: GenerationParams = {
  sampling: defaultSampling,
  seedLo: 0,
  seedHi: 0,
  topLogprobs: -1,
  promptLogprobs: -1,
  logitBias: [],
  maxTokens: 0,
  stop: [],
  stopTokenIds: [],
  includeStop: false,
  ignoreEos: false,
  skipSpecialTokens: true,
  n: 1,
  bestOf: 1,
  priority: 0,
  truncatePromptTokens: null,
  echo: false,
  constraint: null,
};

export function embeddingsMethod(deps: RpcDeps, limits: RequestLimits) {
  return defineMethod({
    name: 'embeddings.create',
    summary: 'A vector for each of one or more texts, pooled from the hidden states of the model.',
    params: embeddingBody(limits),
    result: embeddingList,
    examples: embeddingExamples,
    longLists: ['input'],
    http: { verb: 'POST', path: '/v1/embeddings', params: fromBody },
    operation: 'embeddings',
    work: true,
    ownsCancel: true,
    handler: async (body, ctx): Promise<EmbeddingList> => {
      const known = deps.models.find(body.model);
      const dimensions = dimensionsOf(body.dimensions, known);
      const format = body.encoding_format ?? 'float';
      const inputs = promptInputs(body.input, body.add_special_tokens ?? true);
      const most = known.config.validation.max_embedding_inputs;
      if (inputs.length > most) throw invalidParams([{ path: 'input', message: `may have at most ${most} inputs for this model` }]);
      const params: GenerationParams = {
        ...noGeneration,
        pooling: poolingOf(known),
        priority: body.priority ?? 0,
        truncatePromptTokens: body.truncate_prompt_tokens ?? null,
      };
      if (!ctx.holding.take(inputs.length * keptBytes(dimensions, format))) throw tooManyAnswers();
      const data = new Array<EmbeddingList['data'][number]>(inputs.length);
      const call = new EmbeddingCall(
        deps.models,
        {
          known,
          id: `embd-${randomUUID()}`,
          inputs,
          params,
          atOnce: known.config.scheduler.max_num_sequences,
          onState: (index, state) => {
            data[index] = { object: 'embedding', index, embedding: encoded(embeddingOf(state, dimensions), format) };
          },
        },
        ctx,
      );
      const { promptTokens, cachedTokens } = await call.run();
      return {
        object: 'list',
        data,
        model: servedName(known),
        usage: { prompt_tokens: promptTokens, total_tokens: promptTokens, prompt_tokens_details: { cached_tokens: cachedTokens } },
      };
    },
  });
}

/** @throws InferdError unsupported */
function poolingOf({ model: { pooling } }: KnownModel): NonNullable<GenerationParams['pooling']> {
  if ('refusal' in pooling) throw new InferdError('unsupported', pooling.refusal);
  return pooling.mode;
}

/** @throws InferdError invalid_params */
function dimensionsOf(asked: number | null | undefined, { model: { hiddenSize } }: KnownModel): number {
  if (asked === undefined || asked === null) return hiddenSize;
  if (asked <= hiddenSize) return asked;
  throw invalidParams([{ path: 'dimensions', message: `must be at most ${hiddenSize}, the size of the model's embeddings` }]);
}
