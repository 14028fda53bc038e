/** The daemon's own facts in the shapes that several methods report. */
import type { z } from 'zod';
import type { EngineClient } from '../../actors/client-types.js';
import { InferdError } from '../../actors/messages/errors.js';
import type { RpcDeps } from '../context.js';
import { describeDetail } from '../insight/detail.js';
import { maxBatchMembers } from '../message.js';
import { type KnownModel, servedName } from '../models.js';
import type { limitsSchema, modelSchema, Stats } from '../schemas/info.js';

export function describeLimits({ model, config: { validation: limits } }: KnownModel, { config }: RpcDeps): z.output<typeof limitsSchema> {
  const { server } = config;
  return {
    max_message_bytes: server.max_message_bytes,
    max_requests_per_connection: server.max_requests_per_connection,
    max_batch_members: maxBatchMembers,
    max_model_len: model.maxModelLen,
    max_input_length: model.maxInputLength,
    max_total_tokens: model.maxTotalTokens,
    max_n: limits.max_n,
    max_best_of: limits.best_of,
    max_stop_sequences: limits.max_stop_sequences,
    max_top_logprobs: limits.max_top_n_tokens,
    max_reported_logprobs: limits.max_reported_logprobs,
    max_embedding_inputs: limits.max_embedding_inputs,
  };
}

export function describeModel({ engine, model, residence, adapter }: KnownModel, { startedAt }: RpcDeps): z.output<typeof modelSchema> {
  const loaded = engine?.model() ?? null;
  return {
    id: servedName({ model, adapter }),
    object: 'model',
    created: Math.floor((adapter?.loadedAtMs ?? startedAt) / 1000),
    owned_by: 'inferd',
    root: adapter?.path ?? model.name,
    parent: adapter === undefined ? null : model.name,
    max_model_len: loaded?.maxModelLen ?? model.maxModelLen,
    architecture: model.architecture,
    format: model.format,
    size_bytes: model.sizeBytes,
    vocab_size: model.vocabSize,
    state: residence.state,
    pinned: residence.pinned,
    last_used: residence.lastUsedMs === null ? null : Math.floor(residence.lastUsedMs / 1000),
    memory_bytes: residence.memoryBytes,
    failure: residence.failure,
    dtype: loaded?.dtype ?? null,
    kv_dtype: loaded?.kvDtype ?? null,
    backend: loaded?.backend ?? null,
    parameters: loaded?.parameters ?? null,
  };
}

export interface StatsAsked {
  readonly model?: string | null | undefined;
  readonly detail?: boolean | null | undefined;
}

/**
 * Asks the schedulers of a model. `since`: number of the first step that details tell, of each group; resolves with those of next time.
 * @throws InferdError when it does not answer
 */
export async function describeStats(
  deps: RpcDeps,
  asked: StatsAsked,
  since: readonly number[],
): Promise<{ stats: Stats; next: readonly number[] }> {
  const { models, startedAt } = deps;
  const found = models.find(asked.model);
  // Where nobody names a model: one that is loaded tells more than one that is not.
  const { engine, model, config } = found.engine === null && !asked.model ? (models.loaded()[0] ?? found) : found;
  if (engine === null) throw new InferdError('model_loading', `The model "${model.name}" is not loaded`);
  const { requests, kv, tokens, step, speculation } = await engine.ask('stats', null);
  const groups = await statsOfGroups(engine, config.parallel.data_parallel_size);
  const more = asked.detail === true ? await describeDetail(deps, { model: model.name, engine }, since) : null;
  const memory = process.memoryUsage();
  const stats = {
    requests,
    kv,
    tokens,
    step,
    ...(groups === null ? {} : { groups }),
    ...(speculation === undefined ? {} : { speculation }),
    engine: { state: engine.state(), healthy: engine.healthy(), uptime_s: uptimeSeconds(startedAt) },
    memory: { rss_bytes: memory.rss, heap_used_bytes: memory.heapUsed, weight_bytes: engine.model()?.weightBytes ?? 0 },
    ...(more === null ? {} : { detail: more.detail }),
  };
  return { stats, next: more?.next ?? [] };
}

/** Of those that are up; null where there is one. */
async function statsOfGroups(engine: EngineClient, numGroups: number): Promise<NonNullable<Stats['groups']> | null> {
  if (numGroups === 1) return null;
  const all = await Promise.all(
    Array.from({ length: numGroups }, async (_, group) => {
      const stats = await engine.ask('stats', null, group).catch(() => null);
      return stats === null ? [] : [{ engine: group, ...stats }];
    }),
  );
  return all.flat();
}

export function uptimeSeconds(startedAt: number): number {
  return Math.round(Date.now() - startedAt) / 1000;
}
