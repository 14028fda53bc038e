/**
 * The adapters of one engine, by the names that requests give: loads them into its executors, tells its schedulers, and lets go of them
 * when their last request has ended. Main thread; made by engine.ts where lora.enabled.
 *
 * Each load gets a number of its own, under which executors and schedulers know it, so a name that is loaded anew shares nothing with what
 * it was before: no cached prefix, no place. The order of an end: no name, no lease, no request and no step on its way, then no file.
 */
import { realpathSync } from 'node:fs';
import { isAbsolute, join, relative } from 'node:path';
import type { EngineAdapters, EngineClient, LoadedAdapter } from '../../actors/client-types.js';
import type { ToActor } from '../../actors/messages/control.js';
import { failureOf, InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { Log } from '../../actors/runtime/log.js';
import type { Config } from '../../config/schema.js';
import type { AdapterInfo } from '../../native/index.js';

/** The executors of one engine group. */
export type Executors = readonly { ask(make: (call: number) => ToActor, deadlineMs: number): Promise<unknown> }[];

export interface EngineAdaptersOptions {
  readonly settings: Config['lora'];
  readonly log: Log;
  readonly ask: EngineClient['ask'];
  /** Of each group that is up, by its number. */
  groups(): readonly { readonly index: number; readonly executors: Executors }[];
}

interface Entry extends LoadedAdapter {
  /** Leases that hold it. */
  users: number;
  retired: boolean;
}

const LOAD_LIMIT_MS = 120_000;
/** How often schedulers are asked whether the last of its requests is gone. */
const DROP_RETRY_MS = 20;

export class AdapterBook implements EngineAdapters {
  readonly #options: EngineAdaptersOptions;
  readonly #byName = new Map<string, Entry>();
  /** Names on their way in. */
  readonly #loading = new Set<string>();
  /** Numbers that executors know or may know. */
  #held = 0;
  #next = 1;

  constructor(options: EngineAdaptersOptions) {
    this.#options = options;
  }

  list(): readonly LoadedAdapter[] {
    return [...this.#byName.values()];
  }

  find(name: string): LoadedAdapter | null {
    return this.#byName.get(name) ?? null;
  }

  nameOf(adapter: number): string | null {
    return this.list().find((one) => one.number === adapter)?.name ?? null;
  }

  async load(name: string, path: string, inPlace: boolean): Promise<LoadedAdapter> {
    const { settings, log } = this.#options;
    if (this.#loading.has(name)) throw new InferdError('request_failed', `The adapter "${name}" is being loaded already`);
    const before = this.#byName.get(name);
    if (before !== undefined && !inPlace) {
      throw invalidParams([{ path: 'name', message: 'has already been loaded; unload it first, or load it in place' }]);
    }
    if (this.#held >= settings.max_adapters) {
      throw new InferdError('request_failed', `There are ${this.#held} adapters, as many as lora.max_adapters allows; unload one first`);
    }
    const folder = folderOf(path, settings.folders);
    const number = this.#next++;
    this.#loading.add(name);
    this.#held++;
    try {
      const info = await this.#loadInto(number, folder);
      const entry: Entry = {
        name,
        number,
        path: folder,
        rank: info.rank,
        modules: info.modules,
        base: info.base,
        loadedAtMs: Date.now(),
        users: 0,
        retired: false,
      };
      this.#byName.set(name, entry);
      log.info({ adapter: name, number, rank: info.rank, modules: info.modules }, 'an adapter is loaded');
      if (before !== undefined) this.#retire(before);
      return entry;
    } catch (error) {
      this.#held--;
      throw refusalOf(name, error);
    } finally {
      this.#loading.delete(name);
    }
  }

  unload(name: string): LoadedAdapter {
    const entry = this.#byName.get(name);
    if (entry === undefined) throw adapterNotFound(name);
    this.#byName.delete(name);
    this.#retire(entry);
    return entry;
  }

  hold(adapter: LoadedAdapter): () => void {
    const entry = adapter as Entry; // proof: list and find give entries
    entry.users++;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      entry.users--;
      if (entry.retired && entry.users === 0) void this.#drop(entry);
    };
  }

  /** Gives a group that has come up what the others have; null where there is nothing. One that cannot be read any more is forgotten. */
  restore(group: { readonly index: number; readonly executors: Executors }): Promise<void> | null {
    const entries = [...this.#byName.values()];
    if (entries.length === 0) return null;
    const one = async (entry: Entry): Promise<void> => {
      try {
        await this.#loadGroup(group, entry.number, entry.path);
      } catch (error) {
        this.#options.log.error({ adapter: entry.name, reason: failureOf(error).message }, 'an adapter was not loaded again');
        if (this.#byName.get(entry.name) === entry) this.unload(entry.name);
      }
    };
    return Promise.all(entries.map(one)).then(() => {});
  }

  async #loadInto(number: number, folder: string): Promise<AdapterInfo> {
    const groups = this.#options.groups();
    if (groups.length === 0) throw new InferdError('model_loading');
    const all = await Promise.allSettled(groups.map((group) => this.#loadGroup(group, number, folder)));
    for (const one of all) {
      if (one.status === 'fulfilled') continue;
      await this.#forget(number);
      throw one.reason;
    }
    return (all[0] as PromiseFulfilledResult<AdapterInfo>).value; // proof: there is a group, and none failed
  }

  /** Every rank reads its share, then the scheduler may use it. */
  async #loadGroup(
    group: { readonly index: number; readonly executors: Executors },
    adapter: number,
    folder: string,
  ): Promise<AdapterInfo> {
    const asked = await Promise.allSettled(
      group.executors.map((executor) => executor.ask((call) => ({ k: 'load_adapter', call, adapter, folder }), LOAD_LIMIT_MS)),
    );
    for (const one of asked) if (one.status === 'rejected') throw one.reason;
    await this.#options.ask('addAdapter', { adapter }, group.index);
    return (asked[0] as PromiseFulfilledResult<AdapterInfo>).value; // proof: what executors answer, of which there is one
  }

  #retire(entry: Entry): void {
    entry.retired = true;
    if (entry.users === 0) void this.#drop(entry);
  }

  /** Requests that were cancelled may still be on their way: the schedulers say when the last one is gone. */
  async #drop({ name, number }: Entry): Promise<void> {
    try {
      while ((await this.#options.ask('dropAdapter', { adapter: number })) > 0)
        await new Promise((resolve) => setTimeout(resolve, DROP_RETRY_MS).unref());
    } catch {
      // The engine restarts or ends: its executors know nothing of it then.
    }
    await this.#forget(number);
    this.#held--;
    this.#options.log.info({ adapter: name, number }, 'an adapter is unloaded');
  }

  async #forget(adapter: number): Promise<void> {
    const executors = this.#options.groups().flatMap((group) => group.executors);
    // One that has not got it refuses, which is as good.
    await Promise.allSettled(executors.map((executor) => executor.ask((call) => ({ k: 'unload_adapter', call, adapter }), LOAD_LIMIT_MS)));
  }
}

export const adapterNotFound = (name: string): InferdError =>
  new InferdError('model_not_found', `There is no adapter ${JSON.stringify(name.slice(0, 64))} here`);

/** The folder of an adapter, which must lie in one of `folders`, whatever links lead there; a relative path is looked for in each. */
function folderOf(path: string, folders: readonly string[]): string {
  if (path.includes('\0')) throw invalidParams([{ path: 'path', message: 'must be a path' }]);
  const roots = folders.flatMap((folder) => real(folder) ?? []);
  for (const candidate of isAbsolute(path) ? [path] : roots.map((root) => join(root, path))) {
    const folder = real(candidate);
    if (folder === null) continue;
    const inside = roots.some((root) => {
      const way = relative(root, folder);
      return way !== '' && way !== '..' && !way.startsWith('../') && !isAbsolute(way);
    });
    if (inside) return folder;
  }
  const allowed = folders.length === 0 ? 'lora.folders names none' : `lora.folders are ${folders.map((f) => JSON.stringify(f)).join(', ')}`;
  throw new InferdError(
    'model_not_found',
    `There is no folder ${JSON.stringify(path.slice(0, 256))} inside of the folders for adapters; ${allowed}`,
  );
}

function real(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}

/** What is wrong with the files of an adapter is wrong with the call, not with the engine. */
function refusalOf(name: string, error: unknown): unknown {
  const { kind, message } = failureOf(error);
  if (kind === 'bad_model' || kind === 'missing_file')
    return new InferdError('invalid_params', `The adapter "${name}" cannot be loaded: ${message}`);
  return error;
}
