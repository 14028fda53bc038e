/**
 * The models that calls may name, each with the engine that runs it. Made by the daemon; handlers ask for a model by the name in the call
 * and know no engine but the one they are given.
 */
import type { EngineClient } from '../actors/client-types.js';
import { InferdError } from '../actors/messages/errors.js';
import type { ModelFolder } from '../config/model-folder.js';
import type { Config } from '../config/schema.js';

/** One model that can be asked. */
export interface Served {
  readonly engine: EngineClient;
  readonly model: ModelFolder;
  /** What one request to it may ask for. */
  readonly limits: Config['validation'];
}

export interface Models {
  /** Absent or null: the default model. @throws InferdError model_not_found */
  get(name?: string | null): Served;
  /** The default model first. */
  list(): readonly Served[];
}

/** Characters of an unknown model's name that its error repeats. */
const maxShownName = 64;

/** Models that stay the same for the life of the daemon; the first is the default. */
export function fixedModels(first: Served, ...others: readonly Served[]): Models {
  const all = [first, ...others];
  const byName = new Map(all.map((served) => [served.model.name, served]));
  const names = all.map(({ model }) => `"${model.name}"`).join(', ');
  return {
    get(name) {
      if (name === undefined || name === null) return first;
      const served = byName.get(name);
      if (served !== undefined) return served;
      const asked = JSON.stringify(name.slice(0, maxShownName));
      throw new InferdError('model_not_found', `The model ${asked} is not served here; this daemon serves ${names}`);
    },
    list: () => all,
  };
}
