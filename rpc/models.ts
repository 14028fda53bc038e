/**
 * The models that calls may name. What is known of a model is there at once, whether or not an engine runs it; who needs the engine takes
 * a lease, which may have to wait until the model is loaded, and which keeps it loaded until it is given back. Made by the daemon;
 * handlers know no engine but the one they hold a lease of.
 */
import type { EngineClient, EngineState, LoadedAdapter, StartProgress } from '../actors/client-types.js';
import { InferdError } from '../actors/messages/errors.js';
import type { Cancellation } from '../actors/runtime/cancellation.js';
import type { ModelFolder } from '../config/models/model-folder.js';
import type { Config } from '../config/schema.js';

/** Whether a model is loaded, and what it costs. */
export interface Residence {
  /** Of its engine; "unloaded" while it has none, "failed" also when it could not be loaded. */
  readonly state: EngineState | 'unloaded';
  /** It stays once it is loaded. */
  readonly pinned: boolean;
  /** Milliseconds since the epoch; null while it is not loaded. */
  readonly lastUsedMs: number | null;
  /** Weights, keys and values; null while it is not loaded. */
  readonly memoryBytes: number | null;
  /** One sentence, where it failed. */
  readonly failure: string | null;
}

/** A model that may be named. */
export interface KnownModel {
  readonly model: ModelFolder;
  /** Its own: what one request to it may ask for, among others. */
  readonly config: Config;
  /** `null` while none runs it. */
  readonly engine: EngineClient | null;
  /** As it is when it is read. */
  readonly residence: Residence;
  /** Of the model the name is that of its adapter, which requests use. */
  readonly adapter?: LoadedAdapter;
}

/** What it is asked for by, and answers as. */
export const servedName = ({ model, adapter }: { readonly model: ModelFolder; readonly adapter?: LoadedAdapter | undefined }): string =>
  adapter?.name ?? model.name;

/** What requests to it say besides what they ask. */
export const adapterParams = ({ adapter }: Pick<KnownModel, 'adapter'>): { readonly adapter?: number } =>
  adapter === undefined ? {} : { adapter: adapter.number };

/** The adapter of this name, with the model that has it; null when none of the models has one. */
export function findAdapter<M extends Served>(
  models: readonly M[],
  name: string | null | undefined,
): (M & { readonly adapter: LoadedAdapter }) | null {
  if (name === undefined || name === null) return null;
  for (const one of models) {
    const adapter = one.engine.adapters?.find(name) ?? null;
    if (adapter !== null) return { ...one, residence: one.residence, adapter };
  }
  return null;
}

/** What a request asks for: a model, or an adapter by its name or as `lora`. @throws InferdError model_not_found */
export function findAsked(
  models: Models,
  { model, lora }: { readonly model?: string | null | undefined; readonly lora?: string | null | undefined },
): KnownModel {
  const known = models.find(lora ?? model);
  if (typeof lora === 'string' && known.adapter === undefined)
    throw new InferdError('model_not_found', `${JSON.stringify(lora.slice(0, maxShownName))} is a model and no adapter`);
  return known;
}

/** A lease of the engine that has an adapter, which keeps the adapter too. */
export function adapterLease(lease: Lease, adapter: LoadedAdapter): Lease {
  const letGo = lease.served.engine.adapters?.hold(adapter);
  return {
    served: { ...lease.served, adapter },
    release() {
      letGo?.();
      lease.release();
    },
  };
}

/** One whose engine is there. */
export interface Served extends KnownModel {
  readonly engine: EngineClient;
}

/** A promise that the engine stays. Whoever takes it gives it back, once. */
export interface Lease {
  readonly served: Served;
  release(): void;
}

/** Who waits for a model that is being loaded. */
export interface LeaseAsker {
  /** The wait ends as cancelled when it fires. */
  readonly cancellation?: Cancellation;
  /** How far loading is. */
  onLoading?(progress: StartProgress): void;
}

export interface Models {
  /** Absent or null: the default model. @throws InferdError model_not_found */
  find(name?: string | null): KnownModel;
  /** All that may be named, the default model first. */
  list(): readonly KnownModel[];
  /** Those with an engine. */
  loaded(): readonly Served[];
  /**
   * The engine of a model: at once where it is loaded, else when it is. A lease that comes after the cancellation must be given back too.
   * @throws (or rejects) InferdError model_not_found, model_loading, overloaded, out_of_memory, shutting_down, engine_failure, cancelled
   */
  acquire(name: string | null | undefined, asker: LeaseAsker): Lease | Promise<Lease>;
  /** Loads a model because somebody says so. @throws (rejects) InferdError as `acquire` */
  load(name: string, asker: LeaseAsker): Promise<KnownModel>;
  /** Unloads a model when those who use it have ended. @throws (rejects) InferdError model_not_found, request_failed when it is not loaded */
  unload(name: string): Promise<KnownModel>;
}

/** Characters of an unknown model's name that its error repeats. */
const maxShownName = 64;

/** The refusal of a name that no model has; `names`: of those that may be asked for. */
export function modelNotFound(name: string, names: readonly string[]): InferdError {
  const asked = JSON.stringify(name.slice(0, maxShownName));
  const known = names.map((one) => `"${one}"`).join(', ');
  return new InferdError('model_not_found', `The model ${asked} is not served here; this daemon serves ${known}`);
}

/** Why an engine in a state takes no new work, or null. */
export function refusalIn(state: EngineState): InferdError | null {
  if (state === 'starting') return new InferdError('model_loading');
  if (state === 'draining' || state === 'stopped') return new InferdError('shutting_down');
  if (state === 'failed') return new InferdError('engine_failure');
  return null;
}

/** A model that stays loaded for the life of the program. */
export type FixedModel = Omit<Served, 'residence'>;

/** Such models; the first is the default. */
export function fixedModels(...given: readonly [FixedModel, ...FixedModel[]]): Models {
  const [first, ...others] = given.map((one): Served => ({ ...one, residence: residenceOf(one.engine) })) as [Served, ...Served[]]; // proof: one each
  const all = [first, ...others];
  const byName = new Map(all.map((served) => [served.model.name, served]));
  const find = (name?: string | null): Served => {
    if (name === undefined || name === null) return first;
    const served = byName.get(name) ?? findAdapter(all, name);
    if (served === undefined || served === null) throw modelNotFound(name, [...byName.keys()]);
    return served;
  };
  return {
    find,
    list: () => all,
    loaded: () => all,
    acquire(name) {
      const served = find(name);
      const refusal = refusalIn(served.engine.state());
      if (refusal !== null) throw refusal;
      const lease: Lease = { served, release() {} };
      return served.adapter === undefined ? lease : adapterLease(lease, served.adapter);
    },
    load: () => Promise.reject(new InferdError('unsupported', stays)),
    unload: () => Promise.reject(new InferdError('unsupported', stays)),
  };
}

const stays = 'The model of this engine stays as it is; start another engine for another model';

function residenceOf(engine: EngineClient): Residence {
  return {
    get state() {
      return engine.state();
    },
    pinned: true,
    lastUsedMs: null,
    get memoryBytes() {
      const model = engine.model();
      return model === null ? null : model.weightBytes + model.totalBlocks * model.blockBytes;
    },
    failure: null,
  };
}

/** Does `work` with the engine of a model, and gives it back afterwards. */
export async function withEngine<T>(
  models: Models,
  name: string | null | undefined,
  asker: LeaseAsker,
  work: (served: Served) => Promise<T>,
): Promise<T> {
  const asked = models.acquire(name, asker);
  const lease = asked instanceof Promise ? await asked : asked;
  try {
    return await work(lease.served);
  } finally {
    lease.release();
  }
}
