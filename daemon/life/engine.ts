/**
 * The engine as one thing: topology, pools, supervisor and client joined together. Main thread; started by the daemon, by the library
 * and by tests.
 *
 * It introduces actors to each other whenever one (re)appears: tokenizer <-> scheduler over a fresh link, both <-> client. After a
 * restart of an engine group the tokenizers admit its requests again; after the death of a tokenizer its requests end, retriable, and
 * so do those of a group after a hang of it. Groups that share experts end and start again together. With several groups the engine is ready once all are, and stays so while one is.
 * Invariants: `ready` settles once; `failed` resolves only when the engine gave up; after `stop` no port or timer is left, and no thread
 * but one that does not return from a native call.
 */
import { ActorClient } from '../../actors/client.js';
import { RequestIds } from '../../actors/client-ids.js';
import type { EngineClient, EngineState, StartProgress } from '../../actors/client-types.js';
import { type Failure, failureOf, InferdError } from '../../actors/messages/errors.js';
import { createTaken } from '../../actors/routing/on-the-way.js';
import { closeQueueRoom, createQueueRoom, type QueueRoomMemory } from '../../actors/routing/queue-room.js';
import { SCHEDULER_COUNTER, stepLimitMs, TOKENIZER_COUNTER } from '../../actors/runtime/counters.js';
import type { ActorKind } from '../../actors/runtime/entry.js';
import { invariant, unreachable } from '../../actors/runtime/invariant.js';
import type { Log } from '../../actors/runtime/log.js';
import { createLink } from '../../actors/runtime/mailbox.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import type { Recorder } from '../profile/profiler.js';
import { EngineGroup, type EngineGroupPort, type TokenizerPort, TokenizerUnit } from './actor-units.js';
import type { Ending } from './child-actor.js';
import { AdapterBook } from './engine-adapters.js';
import { type Pulse, watchForHangs } from './hang-watch.js';
import { JoinedGroups } from './joined-groups.js';
import { createPools, type Pools } from './pools.js';
import { servedModel } from './served-model.js';
import { SummedProgress } from './summed-progress.js';
import { Supervisor, type Unit } from './supervisor.js';
import { type Topology, type TopologyExtras, topologyOf } from './topology.js';

export interface EngineHooks {
  readonly log: Log;
  onProgress?(progress: StartProgress): void;
  onState?(state: EngineState): void;
  /** Numbers of requests; to be shared by the engines of one daemon. */
  readonly ids?: RequestIds;
  /** The engine does not keep the process alive: whoever waits for it does. */
  readonly background?: boolean;
}

export interface EngineHandle {
  readonly client: EngineClient;
  /** Resolves when requests are served. @throws InferdError with the reason when that cannot be. */
  readonly ready: Promise<void>;
  /** Refuses new requests and resolves when the running ones have ended; those that have not by the deadline end with shutting_down. */
  drain(deadlineMs: number): Promise<void>;
  /** Ends what is left and stops all actors. Idempotent. */
  stop(): Promise<void>;
  /** Schedulers and executors of the running groups, for the profiler; empty while there is none. */
  recorders(): readonly Recorder[];
  /** For tests: terminates a thread as a crash would. Executors are counted through all groups. */
  killActor(kind: ActorKind, index: number): void;
  /** Resolves with the reason when the engine gave up after it was ready: the process should then exit. */
  readonly failed: Promise<Ending>;
}

/** The engine groups that a unit is made of. */
function groupsOf(unit: Unit): readonly EngineGroup[] {
  if (unit instanceof JoinedGroups) return unit.groups;
  return unit instanceof EngineGroup ? [unit] : [];
}

/** Starts the engine; returns at once. `extras` are for tests. */
export function startEngine(config: Config, model: ModelFolder, hooks: EngineHooks, extras: TopologyExtras = {}): EngineHandle {
  const engine = new Engine(config, model, hooks);
  engine.start(extras);
  return engine;
}

/**
 * What tokenizers may hold of texts to encode, bytes, and how many messages of the largest size at least. The front holds each as well,
 * and characters beyond U+00FF take twice as much, so it comes to four times as much at the most.
 */
const MIN_HELD_SIZE = 64 * 2 ** 20;
const HELD_MESSAGES = 4;

class Engine implements EngineHandle {
  readonly client: ActorClient;
  readonly ready: Promise<void>;
  readonly failed: Promise<Ending>;
  readonly #config: Config;
  readonly #model: ModelFolder;
  readonly #hooks: EngineHooks;
  readonly #hangTimeoutMs: number;
  #pools: Pools | null = null;
  #supervisor: Supervisor | null = null;
  readonly #room: QueueRoomMemory;
  #groups: EngineGroup[] = [];
  /** The groups as one, where they share experts. */
  #joined: JoinedGroups | null = null;
  #tokenizers: TokenizerUnit[] = [];
  /**
   * Lives that the others know of, so that any two of them are linked once. A group has its port before that while those that share experts
   * with it still start, or while its adapters are loaded again.
   */
  readonly #introduced = new WeakSet<TokenizerPort | EngineGroupPort>();
  #adapters: AdapterBook | null = null;
  #endWatch: () => void = () => {};
  #stopping: Promise<void> | null = null;
  #onReady: () => void = () => {};
  #onNotReady: (error: InferdError) => void = () => {};
  #onFailed: (ending: Ending) => void = () => {};

  constructor(config: Config, model: ModelFolder, hooks: EngineHooks) {
    this.#config = config;
    this.#model = model;
    this.#hooks = hooks;
    const { max_queue, max_num_sequences, hang_timeout_s } = config.scheduler;
    const numGroups = config.parallel.data_parallel_size;
    this.#room = createQueueRoom(max_queue, numGroups);
    this.#hangTimeoutMs = hang_timeout_s * 1000;
    this.client = new ActorClient({
      ids: hooks.ids ?? new RequestIds(),
      numGroups,
      maxUnfinished: max_queue + numGroups * max_num_sequences,
      maxHeldSize: Math.max(MIN_HELD_SIZE, HELD_MESSAGES * config.server.max_message_bytes),
      hangTimeoutMs: this.#hangTimeoutMs,
      background: hooks.background ?? false,
      log: hooks.log,
    });
    if (config.lora.enabled) {
      this.#adapters = new AdapterBook({
        settings: config.lora,
        log: hooks.log,
        ask: (name, params, group) => this.client.ask(name, params, group),
        groups: () => this.#groups.flatMap(({ index, port }) => (port === null ? [] : [{ index, executors: port.executors }])),
      });
      this.client.adapters = this.#adapters;
    }
    this.ready = new Promise((resolve, reject) => {
      this.#onReady = resolve;
      this.#onNotReady = reject;
    });
    this.ready.catch(() => {}); // a caller that stops early need not wait for it
    this.failed = new Promise((resolve) => {
      this.#onFailed = resolve;
    });
  }

  start(extras: TopologyExtras): void {
    let topology: Topology;
    try {
      topology = topologyOf(this.#config, this.#model, extras);
    } catch (error) {
      const failure: Failure = error instanceof InferdError ? error.failure : { kind: 'internal', message: String(error) };
      void this.#neverReady(failure);
      return;
    }
    const { log, background = false } = this.#hooks;
    const pools = createPools(log, background);
    const onProgress = (progress: StartProgress) => this.#hooks.onProgress?.(progress);
    const options = { pools, log, onProgress, background };
    this.#pools = pools;
    this.#tokenizers = topology.tokenizers.map((_, index) => new TokenizerUnit(index, topology, options));
    const progress = new SummedProgress(topology.groups.length, onProgress);
    const joined = this.#config.parallel.enable_dp_attention;
    this.#groups = topology.groups.map((_, index) => {
      // Those that share experts agree on their caches when all have loaded.
      const loading = (): number => (joined ? 0 : this.#groups.filter((other) => other.index !== index && other.port === null).length);
      return new EngineGroup(topology, { ...options, onProgress: progress.of(index) }, { index, room: this.#room, loading });
    });
    this.#joined = joined ? new JoinedGroups(this.#groups) : null;
    this.#supervisor = new Supervisor({
      units: [...this.#tokenizers, ...(this.#joined === null ? this.#groups : [this.#joined])],
      restarts: topology.restarts,
      stopLimitMs: this.#hangTimeoutMs,
      log,
      hooks: {
        onUp: (unit) => this.#onUp(unit),
        onDown: (unit) => this.#onDown(unit),
        onFailed: (ending) => this.#giveUp(ending),
      },
    });
    this.#endWatch = watchForHangs(this.#pulses(), this.#hangTimeoutMs);
    void this.#bringUp(this.#supervisor);
  }

  async drain(deadlineMs: number): Promise<void> {
    this.#setState('draining');
    let timer: NodeJS.Timeout | undefined;
    const deadline = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, deadlineMs);
    });
    await Promise.race([this.client.idle(), deadline]);
    clearTimeout(timer);
    this.client.failAll({ kind: 'shutting_down' });
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  recorders(): readonly Recorder[] {
    const ask = (child: EngineGroupPort['scheduler']): Recorder['ask'] => child.ask.bind(child);
    return this.#groups.flatMap(({ index: group, port }): Recorder[] => {
      if (port === null) return [];
      const first = group * port.executors.length;
      return [
        { kind: 'scheduler', group, rank: first, ask: ask(port.scheduler) },
        ...port.executors.map((child, rank): Recorder => ({ kind: 'executor', group, rank: first + rank, ask: ask(child) })),
      ];
    });
  }

  killActor(kind: ActorKind, index: number): void {
    const child = this.#child(kind, index);
    invariant(child !== undefined, `there is no ${kind} ${index} now`);
    child.kill();
  }

  async #bringUp(supervisor: Supervisor): Promise<void> {
    const ending = await supervisor.start();
    if (this.#stopping !== null) return;
    if (ending !== null) return this.#neverReady(ending.failure);
    try {
      for (const entry of this.#config.lora.enabled ? this.#config.lora.preload : []) await this.#preload(entry);
    } catch (error) {
      await supervisor.stop();
      return this.#neverReady(failureOf(error));
    }
    if (this.#stopping !== null) return;
    this.#setState('ready');
    this.#onReady();
  }

  /** `entry`: NAME=PATH. */
  async #preload(entry: string): Promise<void> {
    const at = entry.indexOf('=');
    await this.#adapters?.load(entry.slice(0, at), entry.slice(at + 1), false);
  }

  /** The first start went wrong. What was started is stopped by the time `ready` rejects. */
  async #neverReady({ kind, message, data }: Failure): Promise<void> {
    this.#setState('failed');
    await this.#release();
    this.#onNotReady(new InferdError(kind, message, data));
  }

  #giveUp(ending: Ending): void {
    this.#setState('failed');
    this.client.close({ kind: 'engine_failure', data: { retriable: false } });
    this.#onFailed(ending);
  }

  async #stop(): Promise<void> {
    this.#setState('stopped');
    this.client.close({ kind: 'shutting_down' });
    this.#onNotReady(new InferdError('shutting_down'));
    await this.#supervisor?.stop();
    await this.#release();
  }

  async #release(): Promise<void> {
    this.#endWatch();
    await this.#pools?.close();
  }

  // --- introductions ---

  #onUp(unit: Unit): void {
    if (unit instanceof TokenizerUnit) this.#tokenizerUp(unit);
    else for (const group of groupsOf(unit)) this.#groupUp(group);
  }

  #onDown(unit: Unit): void {
    if (unit instanceof TokenizerUnit) {
      unit.port = null;
      this.client.detachTokenizer(unit.index);
      for (const { port } of this.#groups) port?.scheduler.send({ k: 'detach', owner: unit.index });
      return;
    }
    for (const group of groupsOf(unit)) {
      group.port = null;
      closeQueueRoom(this.#room, group.index);
      this.client.detachScheduler(group.index);
    }
    const groups = groupsOf(unit).map(({ index }) => index);
    for (const { port } of this.#tokenizers) port?.child.send({ k: 'disconnect', groups });
    if (this.#groups.every(({ port }) => port === null)) this.#setState('restarting');
  }

  #tokenizerUp(unit: TokenizerUnit): void {
    const { port } = unit;
    invariant(port !== null, 'a ready tokenizer has a port');
    this.#introduced.add(port);
    for (const group of this.#groups) this.#connect(unit, group);
    this.client.attachTokenizer(unit.index, port.front, port.counters);
    this.#hooks.onProgress?.({ phase: 'tokenizer', done: this.#tokenizers.filter((t) => t.port).length, total: this.#tokenizers.length });
  }

  #groupUp(group: EngineGroup): void {
    const { port } = group;
    invariant(port !== null, 'a ready engine group has a port');
    const capacities = this.#groups.flatMap(({ capacity }) => capacity ?? []);
    this.client.setModel(servedModel(this.#config, this.#model, capacities));
    this.client.attachScheduler(port.front, port.counters, group.index, port.spins);
    const open = (): void => {
      if (group.port !== port) return;
      this.#introduced.add(port);
      for (const unit of this.#tokenizers) this.#connect(unit, group);
      if (this.client.state() === 'restarting') this.#setState('ready');
    };
    const restoring = this.#adapters?.restore({ index: group.index, executors: port.executors }) ?? null;
    if (restoring === null) open();
    else void restoring.then(open);
  }

  /** Links a tokenizer and the scheduler of a group, when both are there: the one that is introduced last does it. */
  #connect(unit: TokenizerUnit, { port, index }: EngineGroup): void {
    if (port === null || unit.port === null || !this.#introduced.has(port) || !this.#introduced.has(unit.port)) return;
    const [tokenizerEnd, schedulerEnd] = createLink(null, port.schedulerBell);
    const taken = createTaken();
    port.scheduler.send({ k: 'attach', owner: unit.index, link: schedulerEnd, taken }, [schedulerEnd.port]);
    unit.port.child.send({ k: 'connect', link: tokenizerEnd, group: { index, board: port.board, taken } }, [tokenizerEnd.port]);
  }

  // --- the rest ---

  #child(kind: ActorKind, index: number) {
    switch (kind) {
      case 'tokenizer':
        return this.#tokenizers[index]?.port?.child;
      case 'scheduler':
        return this.#groups[index]?.port?.scheduler;
      case 'executor':
        return this.#executor(index);
      default:
        return unreachable(kind);
    }
  }

  #executor(index: number) {
    const ranks = this.#config.parallel.tensor_parallel_size;
    return this.#groups[Math.floor(index / ranks)]?.port?.executors[index % ranks];
  }

  #pulses(): Pulse[] {
    const pulse = (unit: EngineGroup | TokenizerUnit, cell: number, reason: string): Pulse => ({
      mark: () => unit.port?.counters[cell] ?? 0,
      limitMs: () => this.#hangTimeoutMs,
      onHang: () => this.#endHanging(unit, reason),
    });
    const ofTokenizers = this.#tokenizers.flatMap((unit) => [
      pulse(unit, TOKENIZER_COUNTER.heartbeatMs, 'its event loop stands still'),
      pulse(unit, TOKENIZER_COUNTER.busySinceMs, 'one message takes too long'),
    ]);
    const ofGroups = this.#groups.flatMap((group) => {
      const step = pulse(group, SCHEDULER_COUNTER.inFlightSinceMs, 'a step does not end');
      const limitMs = (): number => stepLimitMs(group.port?.counters ?? null, this.#hangTimeoutMs);
      return [{ ...step, limitMs }, pulse(group, SCHEDULER_COUNTER.heartbeatMs, 'its scheduler stands still')];
    });
    return [...ofTokenizers, ...ofGroups];
  }

  /** A request may be what makes it hang, so none of those in it is tried again: each ends now, while the threads may take their time. */
  #endHanging(unit: EngineGroup | TokenizerUnit, reason: string): void {
    this.#hooks.log.error({ unit: unit.name, reason, limitMs: this.#hangTimeoutMs }, 'an actor hangs and is ended');
    const message = `The ${unit.name} made no progress for too long and was ended; send the request again`;
    const failure: Failure = { kind: 'engine_failure', message, data: { retriable: true } };
    if (unit instanceof EngineGroup) this.client.failRequests(failure, unit.index);
    this.#supervisor?.kill(unit instanceof EngineGroup ? (this.#joined ?? unit) : unit, { failure, fatal: false });
  }

  /** Draining goes on through a restart; nothing comes after failed but stopped, nothing after stopped. */
  #setState(next: EngineState): void {
    const now = this.client.state();
    if (now === next || now === 'stopped' || (now === 'failed' && next !== 'stopped')) return;
    if (now === 'draining' && (next === 'ready' || next === 'restarting')) return;
    this.client.setState(next);
    this.#hooks.onState?.(next);
  }
}
