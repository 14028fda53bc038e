/** May a call start? The model must be the served one, and the engine must take work. */
import { InferdError } from '../../actors/messages/errors.js';
import type { RpcDeps } from '../context.js';

/** Characters of an unknown model's name that its error repeats. */
const maxShownName = 64;

/** @throws InferdError when `model` is another one, or the engine is not there yet or no more */
export function checkServed(model: string | null | undefined, { engine, model: served }: RpcDeps): void {
  checkModel(model, served.name);
  const state = engine.state();
  if (state === 'starting') throw new InferdError('model_loading');
  if (state === 'draining' || state === 'stopped') throw new InferdError('shutting_down');
  if (state === 'failed') throw new InferdError('engine_failure');
}

/** @throws InferdError model_not_found */
export function checkModel(model: string | null | undefined, servedName: string): void {
  if (model === undefined || model === null || model === servedName) return;
  const asked = JSON.stringify(model.slice(0, maxShownName));
  throw new InferdError('model_not_found', `The model ${asked} is not served here; this daemon serves "${servedName}"`);
}
