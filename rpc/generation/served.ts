/** May a call start? The model must be the served one, and the engine must take work. */
import { InferdError } from '../../actors/messages/errors.js';
import type { RpcDeps } from '../context.js';

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
  throw new InferdError('model_not_found', `The model is not served here; this daemon serves "${servedName}"`);
}
