/** What an engine says of its model, from what the executors of its groups found out. Pure; used by engine.ts. */
import type { ServedModel } from '../../actors/client-types.js';
import type { Capacity } from '../../actors/messages/control.js';
import { invariant } from '../../actors/runtime/invariant.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';

/** `capacities`: of each engine group that was ready once; they have equal models, and weights and blocks of their own. */
export function servedModel(config: Config, model: ModelFolder, capacities: readonly Capacity[]): ServedModel {
  const [first] = capacities;
  invariant(first !== undefined, 'no engine group was ready');
  const sum = (of: (capacity: Capacity) => number): number => capacities.reduce((total, capacity) => total + of(capacity), 0);
  return {
    name: model.name,
    architecture: first.architecture,
    dtype: first.dtype,
    kvDtype: first.kvDtype,
    vocabSize: first.vocabSize,
    maxModelLen: model.maxModelLen,
    weightBytes: sum(({ weightBytes }) => weightBytes),
    parameters: first.parameters,
    backend: capacities.length === 1 ? first.backend : `${capacities.length} groups of ${first.backend}`,
    blockSize: config.cache.block_size,
    totalBlocks: sum(({ numBlocks }) => numBlocks),
    blockBytes: first.blockBytes,
  };
}
