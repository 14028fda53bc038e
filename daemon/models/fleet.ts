/**
 * The models of a daemon with their engines: finds a model by name, loads it when it is asked for, gives leases of it, and unloads it
 * again. What happens when is decided by residency.ts, what fits by memory.ts, what there is by catalogue.ts; here engines are started
 * and stopped, and calls wait. Main thread; one a daemon.
 *
 * Invariants: a lease is given only of an engine that is ready, which then stays until the lease is given back or the engine gives up;
 * whoever waits hears one end: the lease, a refusal, the deadline of the queue, or the cancellation.
 */
import type { RequestIds } from '../../actors/client-ids.js';
import type { EngineClient, EngineState, StartProgress } from '../../actors/client-types.js';
import { type Failure, failureOf, InferdError } from '../../actors/messages/errors.js';
import type { Log } from '../../actors/runtime/log.js';
import type { Config } from '../../config/schema.js';
import type { BackendName } from '../../native/index.js';
import {
  adapterLease,
  findAdapter,
  type KnownModel,
  type Lease,
  type LeaseAsker,
  type Models,
  type Residence,
  refusalIn,
  type Served,
} from '../../rpc/models.js';
import type { Ending } from '../life/child-actor.js';
import type { EngineHandle, startEngine } from '../life/engine.js';
import type { Catalogue, FoundModel } from './catalogue.js';
import { Memory, type MemoryOptions } from './memory.js';
import { Residency, type ResidencySettings } from './residency.js';

export interface FleetOptions {
  readonly catalogue: Catalogue;
  readonly log: Log;
  readonly ids: RequestIds;
  /** [models] now. */
  settings(): Config['models'];
  /** Those who wait for a model, and for how long. */
  readonly queue: { readonly maxWaiting: number; readonly timeoutMs: number };
  readonly memory: Pick<MemoryOptions, 'probe'>;
  /** What a model would run on. */
  deviceOf(config: Config): BackendName;
  readonly startEngine: typeof startEngine;
  /** The engine of a model as calls see it, and the end of that. */
  metered(found: FoundModel, engine: EngineClient): EngineClient;
  unmetered(name: string): void;
  /** Of the default model, while the daemon starts. */
  onProgress(progress: StartProgress): void;
  /** Of the default model. */
  onState(state: EngineState): void;
  /** An engine gave up, and the daemon should end: it was the only one, or spoiled the device for all. */
  onGaveUp(ending: Ending): void;
}

/** An engine from its start to its end. */
interface Life {
  readonly found: FoundModel;
  readonly handle: EngineHandle;
  readonly served: Served;
  readonly startedMs: number;
}

/** Looks for models that were unused for too long. */
const EXPIRE_MS = 500;
/** When a client may ask again for a model that was not loaded in time. */
const RETRY_AFTER_MS = 5000;

export class Fleet implements Models {
  readonly #options: FleetOptions;
  readonly #catalogue: Catalogue;
  readonly #memory: Memory;
  readonly #residency: Residency;
  /** Models that were asked for, as they were found last. */
  readonly #found = new Map<string, FoundModel>();
  readonly #lives = new Map<string, Life>();
  readonly #hearing = new Map<string, Set<LeaseAsker>>();
  readonly #untilGone = new Map<string, (() => void)[]>();
  readonly #timer: NodeJS.Timeout;
  /** The default model was loaded once: from then on calls wait for models. */
  #open = false;
  #draining = false;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#catalogue = options.catalogue;
    const first = this.#catalogue.first.model.name;
    this.#memory = new Memory({
      ...options.memory,
      always: first,
      plan: (name) => {
        const found = this.#foundModel(name);
        return { ...found, device: options.deviceOf(found.config) };
      },
    });
    this.#residency = new Residency(() => this.#settings(), this.#memory, {
      load: (name) => this.#load(name),
      unload: (name) => void this.#unload(name),
    });
    this.#timer = setInterval(() => this.#residency.expire(performance.now()), EXPIRE_MS);
    this.#timer.unref();
  }

  /** Loads the default model, then those of models.preload beside what is asked for. @throws InferdError when the default one cannot be loaded */
  async start(): Promise<void> {
    const { preload } = this.#options.settings();
    for (const name of preload) this.#catalogue.find(name);
    (await this.#wait(this.#first, {}, { explicit: true, timed: false })).release();
    this.#open = true;
    for (const name of preload) {
      this.load(name, {}).catch((error: unknown) =>
        this.#options.log.error({ model: name, reason: failureOf(error).message }, 'a model was not loaded'),
      );
    }
  }

  // --- Models ---

  find(name?: string | null): KnownModel {
    const adapted = findAdapter(this.loaded(), name);
    if (adapted !== null) return { ...this.#known(this.#foundModel(adapted.model.name)), adapter: adapted.adapter };
    // Of a model that is there, what it was made with: each request asks for it several times.
    return this.#lives.get(name ?? this.#first)?.served ?? this.#known(this.#catalogue.find(name ?? this.#first));
  }

  list(): readonly KnownModel[] {
    const listed = this.#catalogue.list();
    const names = new Set(listed.map(({ model }) => model.name));
    // A folder may be gone while its model is loaded.
    const others = [...this.#lives.values()].map(({ found }) => found).filter(({ model }) => !names.has(model.name));
    return [...listed, ...others].map((found) => this.#known(found));
  }

  loaded(): readonly Served[] {
    return this.#ready().map(({ served }) => served);
  }

  acquire(name: string | null | undefined, asker: LeaseAsker): Lease | Promise<Lease> {
    const asked = name ?? this.#first;
    const lease = this.#lease(asked);
    if (lease !== null) return lease;
    const adapted = findAdapter(this.loaded(), asked);
    const leaseOfBase = adapted === null ? null : this.#lease(adapted.model.name);
    if (adapted !== null && leaseOfBase !== null) return adapterLease(leaseOfBase, adapted.adapter);
    if (this.#draining) throw new InferdError('shutting_down');
    this.#look(asked);
    if (!this.#open) throw refusalIn(this.#lives.get(asked)?.handle.client.state() ?? 'starting') ?? new InferdError('model_loading');
    const known = this.#residency.facts(asked);
    if (!this.#options.settings().load_on_demand && known?.phase !== 'loading' && known?.phase !== 'loaded') {
      throw new InferdError(
        'model_not_found',
        `The model "${asked}" is not loaded, and models.load_on_demand is off; load it first ("inferd load ${asked}")`,
      );
    }
    return this.#wait(asked, asker, { explicit: false, timed: true });
  }

  async load(name: string, asker: LeaseAsker): Promise<KnownModel> {
    this.#look(name);
    if (!this.#open) throw new InferdError('model_loading');
    (await this.#wait(name, asker, { explicit: true, timed: false })).release();
    return this.find(name);
  }

  async unload(name: string): Promise<KnownModel> {
    const known = this.find(name);
    if (!this.#residency.unload(name, performance.now())) {
      if (known.residence.state === 'failed') return this.find(name);
      throw new InferdError('request_failed', `The model "${name}" is not loaded`);
    }
    await new Promise<void>((resolve) => this.#untilGone.set(name, [...(this.#untilGone.get(name) ?? []), resolve]));
    return this.find(name);
  }

  // --- what the daemon asks ---

  /** The engine of a model, by default of the default one; null while there is none. */
  handle(name: string = this.#first): EngineHandle | null {
    return this.#lives.get(name)?.handle ?? null;
  }

  /** The model that a recording is of: the default one, else the one that was loaded last. */
  recorded(): EngineHandle | null {
    return this.handle() ?? this.#ready().at(-1)?.handle ?? null;
  }

  /** True while every engine makes progress. */
  healthy(): boolean {
    return (this.#open || this.#lives.size > 0) && this.#probed().every(({ handle: { client } }) => client.healthy());
  }

  /** True while nothing hangs. An engine that restarts has to load its model again: that is no hang, and its supervisor counts it. */
  alive(): boolean {
    return this.#probed().every(({ handle: { client } }) => client.healthy() || client.state() === 'restarting');
  }

  /** Whether calls are taken: ready while one engine is, or a model can be loaded when it is asked for. */
  state(): EngineState {
    if (!this.#open) return this.handle()?.client.state() ?? 'starting';
    if (this.#draining) return 'draining';
    const states = this.#ready().map(({ handle }) => handle.client.state());
    return states.find((state) => state === 'ready') ?? states[0] ?? 'ready';
  }

  requests() {
    return [...this.#lives.values()].flatMap(({ handle }) => handle.client.requests());
  }

  /** Refuses those who wait, and lets running requests of all engines end, until the deadline. */
  async drain(deadlineMs: number): Promise<void> {
    this.#draining = true;
    this.#residency.stop();
    await Promise.all([...this.#lives.values()].map(({ handle }) => handle.drain(deadlineMs)));
  }

  /** Stops all engines side by side. */
  async stop(): Promise<void> {
    this.#draining = true;
    clearInterval(this.#timer);
    this.#residency.stop();
    await Promise.all([...this.#lives.values()].map(({ handle }) => handle.stop()));
  }

  // --- leases ---

  get #first(): string {
    return this.#catalogue.first.model.name;
  }

  /** Of a model that is loaded; null when it must be waited for. @throws InferdError when its engine takes no work */
  #lease(name: string): Lease | null {
    const generation = this.#residency.use(name, performance.now());
    if (generation === null) return null;
    const life = this.#lives.get(name);
    const refusal = life === undefined ? new InferdError('internal') : refusalIn(life.handle.client.state());
    if (refusal === null && life !== undefined) return this.#leaseOf(life, generation);
    this.#residency.release(name, generation, performance.now());
    throw refusal;
  }

  #leaseOf({ served, found }: Life, generation: number): Lease {
    let held = true;
    return {
      served,
      release: () => {
        if (held) this.#residency.release(found.model.name, generation, performance.now());
        held = false;
      },
    };
  }

  #wait(name: string, asker: LeaseAsker, { explicit, timed }: { readonly explicit: boolean; readonly timed: boolean }): Promise<Lease> {
    const hearing = this.#hearing.get(name) ?? new Set();
    this.#hearing.set(name, hearing.add(asker));
    let timer: NodeJS.Timeout | undefined;
    let end = (_failure: Failure): void => {};
    const cancel = (): void => end({ kind: 'cancelled' });
    const wait = new Promise<Lease>((resolve, reject) => {
      const waiter = {
        granted: (generation: number): void => {
          const life = this.#lives.get(name);
          if (life === undefined) reject(new InferdError('internal'));
          else resolve(this.#leaseOf(life, generation));
        },
        refused: ({ kind, message, data }: Failure): void => reject(new InferdError(kind, message, data)),
      };
      end = (failure) => {
        this.#residency.leave(name, waiter, performance.now());
        waiter.refused(failure);
      };
      const { timeoutMs } = this.#options.queue;
      if (timed) timer = setTimeout(() => end(this.#late(name)), timeoutMs);
      asker.cancellation?.listen(cancel);
      this.#residency.wait(name, waiter, performance.now(), explicit);
      if (asker.cancellation?.cancelled) cancel();
    });
    return wait.finally(() => {
      clearTimeout(timer);
      asker.cancellation?.unlisten(cancel);
      hearing.delete(asker);
    });
  }

  #late(name: string): Failure {
    const busy = this.#ready().filter(
      ({ found }) => found.model.name !== name && (this.#residency.facts(found.model.name)?.users ?? 0) > 0,
    );
    const loading = this.#residency.facts(name)?.phase === 'loading';
    const why =
      loading || busy.length === 0
        ? 'is still loading'
        : `waits for room; unload ${busy.map(({ found }) => `"${found.model.name}" (in use)`).join(' or ')}`;
    return { kind: 'model_loading', message: `The model "${name}" ${why}`, data: { retry_after_ms: RETRY_AFTER_MS } };
  }

  /** Finds a model that is not loaded. @throws InferdError as Catalogue.find */
  #look(name: string): void {
    if (!this.#lives.has(name)) this.#found.set(name, this.#catalogue.find(name));
  }

  #foundModel(name: string): FoundModel {
    return this.#lives.get(name)?.found ?? this.#found.get(name) ?? this.#catalogue.find(name);
  }

  // --- engines ---

  #load(name: string): void {
    const { log, ids } = this.#options;
    const found = this.#foundModel(name);
    const first = name === this.#first;
    log.info({ model: name }, 'loading a model');
    this.#memory.plan(name);
    const handle = this.#options.startEngine(this.#memory.configFor(name), found.model, {
      log,
      ids,
      onProgress: (progress) => {
        if (first && !this.#open) this.#options.onProgress(progress);
        for (const { onLoading } of this.#hearing.get(name) ?? []) onLoading?.(progress);
      },
      onState: (state) => {
        if (first) this.#options.onState(state);
      },
    });
    const engine = this.#options.metered(found, handle.client);
    const life: Life = { found, handle, served: { ...found, engine, residence: this.#residence(name) }, startedMs: performance.now() };
    this.#lives.set(name, life);
    handle.ready.then(
      () => this.#loaded(name, life),
      (error: unknown) => this.#notLoaded(name, life, failureOf(error)),
    );
    void handle.failed.then((ending) => this.#gaveUp(name, life, ending));
  }

  #loaded(name: string, life: Life): void {
    const served = life.handle.client.model();
    if (served !== null) this.#memory.measured(name, served);
    this.#options.log.info({ model: name, ms: Math.round(performance.now() - life.startedMs) }, 'a model is loaded');
    this.#residency.loaded(name, performance.now());
  }

  /** Not of one that was told to stop. */
  async #notLoaded(name: string, life: Life, failure: Failure): Promise<void> {
    if (this.#residency.facts(name)?.phase !== 'loading') return;
    await life.handle.stop();
    this.#forget(name, life);
    this.#residency.loadFailed(name, failure, performance.now());
  }

  #gaveUp(name: string, life: Life, ending: Ending): void {
    if (this.#draining || this.#lives.get(name) !== life) return;
    if (ending.fatal || this.#lives.size === 1) this.#options.onGaveUp(ending);
    else this.#options.log.error({ model: name, reason: ending.failure.message }, 'the engine of a model gave up; the others go on');
    this.#residency.gaveUp(name, { ...ending.failure, kind: 'engine_failure', data: { retriable: false } }, performance.now());
  }

  /** In a turn of its own: whoever gave the last lease back is not done yet. */
  async #unload(name: string): Promise<void> {
    const life = this.#lives.get(name);
    await new Promise((resolve) => setImmediate(resolve));
    await life?.handle.stop();
    if (life !== undefined) this.#forget(name, life);
    this.#options.log.info({ model: name }, 'a model is unloaded');
    this.#residency.gone(name, performance.now());
    for (const resolve of this.#untilGone.get(name) ?? []) resolve();
    this.#untilGone.delete(name);
  }

  #forget(name: string, life: Life): void {
    if (this.#lives.get(name) !== life) return;
    this.#lives.delete(name);
    this.#memory.gone(name);
    this.#options.unmetered(name);
  }

  /** Engines that are ready, or were. */
  #ready(): Life[] {
    return [...this.#lives.values()].filter(({ found }) => this.#residency.facts(found.model.name)?.phase === 'loaded');
  }

  /** Those that must be well: the default one also while the daemon starts. */
  #probed(): Life[] {
    return this.#open ? this.#ready() : [...this.#lives.values()];
  }

  #settings(): ResidencySettings {
    const { max_loaded, keep_alive_s, pinned, preload } = this.#options.settings();
    return {
      maxLoaded: max_loaded,
      keepAliveMs: keep_alive_s * 1000,
      maxWaiting: this.#options.queue.maxWaiting,
      isPinned: (name) => pinned.includes(name),
      isKept: (name) => name === this.#first || preload.includes(name),
    };
  }

  // --- descriptions ---

  #known(found: FoundModel): KnownModel {
    const { name } = found.model;
    return { ...found, engine: this.#lives.get(name)?.served.engine ?? null, residence: this.#residence(name) };
  }

  /** Read when it is asked for. */
  #residence(name: string): Residence {
    const fleet = this;
    return {
      get state() {
        return fleet.#stateOf(name);
      },
      get pinned() {
        return fleet.#options.settings().pinned.includes(name);
      },
      get lastUsedMs() {
        const facts = fleet.#residency.facts(name);
        return facts === null || fleet.#memory.of(name) === null ? null : Math.round(performance.timeOrigin + facts.lastUsedMs);
      },
      get memoryBytes() {
        return fleet.#memory.of(name);
      },
      get failure() {
        return fleet.#residency.facts(name)?.failure?.message ?? null;
      },
    };
  }

  #stateOf(name: string): Residence['state'] {
    const phase = this.#residency.facts(name)?.phase ?? 'unloaded';
    const engine = this.#lives.get(name)?.handle.client;
    switch (phase) {
      case 'loading':
        return 'starting';
      case 'loaded':
        return engine?.state() ?? 'unloaded';
      case 'unloading':
        return 'draining';
      default:
        return phase;
    }
  }
}
