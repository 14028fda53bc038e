/** May a call start? The model must be one that is served, and its engine must take work. */
import { InferdError } from '../../actors/messages/errors.js';
import type { Models, Served } from '../models.js';

/** @throws InferdError when there is no such model, or its engine is not there yet or no more */
export function servedModel(name: string | null | undefined, models: Models): Served {
  const served = models.get(name);
  const state = served.engine.state();
  if (state === 'starting') throw new InferdError('model_loading');
  if (state === 'draining' || state === 'stopped') throw new InferdError('shutting_down');
  if (state === 'failed') throw new InferdError('engine_failure');
  return served;
}
