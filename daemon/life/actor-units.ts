/**
 * The units of the topology brought to life: threads, doorbells, rings and links. Each `start` makes everything anew, so nothing of an
 * earlier life can be mistaken for the present one. Main thread; started and stopped by the supervisor, joined by the engine.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockstepMemory } from '../../actors/executor/lockstep.js';
import type { Capacity, LinkEnd } from '../../actors/messages/control.js';
import { type BoardMemory, createBoard } from '../../actors/routing/board.js';
import { openQueueRoom, type QueueRoomMemory } from '../../actors/routing/queue-room.js';
import { type Counters, createCounters, SCHEDULER_COUNTER, TOKENIZER_COUNTER } from '../../actors/runtime/counters.js';
import { createDoorbell, type Doorbell } from '../../actors/runtime/doorbell.js';
import { invariant } from '../../actors/runtime/invariant.js';
import { createLink } from '../../actors/runtime/mailbox.js';
import { createRing } from '../../actors/runtime/ring.js';
import { swapCostTokens } from '../../actors/scheduler/preemption.js';
import { deviceKinds } from '../../native/device-kinds.js';
import { loadAddon } from '../../native/index.js';
import { Child, type ChildOptions, type ChildStart, type Ending } from './child-actor.js';
import { SummedProgress } from './summed-progress.js';
import type { Life, Unit } from './supervisor.js';
import type { Topology } from './topology.js';

/** What the front needs of a tokenizer that is ready. */
export interface TokenizerPort {
  readonly child: Child;
  readonly front: LinkEnd;
  readonly counters: Counters;
}

export class TokenizerUnit implements Unit {
  readonly name: string;
  readonly index: number;
  /** It shares nothing with its successor but the processor. */
  readonly stuck = null;
  /** Of the present life. */
  port: TokenizerPort | null = null;
  readonly #options: ChildOptions;
  readonly #topology: Topology;

  constructor(index: number, topology: Topology, options: ChildOptions) {
    this.name = `tokenizer ${index}`;
    this.index = index;
    this.#topology = topology;
    this.#options = options;
  }

  start(): Life {
    const tokenizer = this.#topology.tokenizers[this.index];
    invariant(tokenizer !== undefined, `topology: no tokenizer ${this.index}`);
    const [front, theirs] = createLink(null, null);
    const counters = createCounters(TOKENIZER_COUNTER.cells);
    return new Children(this.#options, async (spawn) => {
      const actor = { kind: 'tokenizer', start: { tokenizer, front: theirs, counters } } as const;
      const child = await spawn({ actor, index: this.index, transfer: [theirs.port], bell: null });
      this.port = { child: child.child, front, counters };
    });
  }
}

/** What the front and the tokenizers need of an engine group that is ready. */
export interface EngineGroupPort {
  readonly scheduler: Child;
  readonly schedulerBell: Doorbell;
  readonly executors: readonly Child[];
  readonly front: LinkEnd;
  readonly counters: Counters;
  readonly capacity: Capacity;
  /** What it shows to those who choose between groups; null where there is one. */
  readonly board: BoardMemory | null;
  /** Its scheduler can be woken ahead. */
  readonly spins: boolean;
}

/** What groups that share experts have together in one life: see JoinedGroups. */
export interface SharedExperts {
  /** Of newRankGroup. */
  readonly group: number;
  /** Of all executors, by group. */
  readonly lockstep: LockstepMemory;
  /** Wakes all executors that wait for each other, with the reason. */
  part(why: string): void;
}

/** Where a group stands among those of its engine. */
export interface GroupSeat {
  readonly index: number;
  /** For those who wait in all groups. */
  readonly room: QueueRoomMemory;
  /** Other groups that are loading now. */
  loading(): number;
}

export class EngineGroup implements Unit {
  readonly name: string;
  readonly index: number;
  readonly stuck: Ending;
  /** Of the last life that was ready. */
  capacity: Capacity | null = null;
  port: EngineGroupPort | null = null;
  readonly #options: ChildOptions;
  readonly #topology: Topology;
  readonly #seat: GroupSeat;
  readonly #executors: Topology['groups'][number];
  /** Counts lives. */
  #epoch = 0;

  constructor(topology: Topology, options: ChildOptions, seat: GroupSeat) {
    this.name = topology.groups.length === 1 ? 'engine' : `engine ${seat.index}`;
    this.index = seat.index;
    this.#topology = topology;
    this.#options = options;
    this.#seat = seat;
    const executors = topology.groups[seat.index];
    invariant(executors !== undefined, `topology: no group ${seat.index}`);
    this.#executors = executors;
    // Its memory, and its device, are not free for a successor.
    const message = 'A step of the engine does not end and what it works with cannot be freed, so the process has to end';
    const fatal = executors.some(({ backend }) => !deviceKinds[backend].onHost);
    this.stuck = { failure: { kind: 'engine_failure', message, data: { retriable: false } }, fatal };
  }

  /** `shared`: it is one of several that live and end together. */
  start(shared: SharedExperts | null = null): Life {
    const { groups, plans: planSpec, results: resultSpec, scheduler: options, executorModule, closeLimitMs, spinUs } = this.#topology;
    const executors = this.#executors;
    const { index, room } = this.#seat;
    const kv = { ...this.#topology.kv, groups: groups.length, loading: this.#seat.loading() };
    const epoch = ++this.#epoch;
    const { operationsPerByte } = deviceKinds[executors[0]?.backend ?? 'cpu'];
    // Fresh for each life: what is left of the last one can never meet this one's ranks.
    const ranks = shared !== null ? { group: shared.group } : executors.length > 1 ? { group: loadAddon().newRankGroup() } : {};
    const part = (why: string): void => {
      if (shared !== null) shared.part(why);
      else if (ranks.group !== undefined) loadAddon().endRankGroup(ranks.group, why);
    };
    const lockstep = shared?.lockstep ?? null;
    const progress = new SummedProgress(executors.length, this.#options.onProgress);
    const schedulerBell = createDoorbell();
    const executorBells = executors.map(() => lockstep?.bells[index] ?? createDoorbell());
    const plans = createRing({ ...planSpec, readers: executors.length });
    const results = createRing({ ...resultSpec, readers: 1 });
    const counters = createCounters(SCHEDULER_COUNTER.cells);
    const bringUp = async (spawn: Spawn) => {
      openQueueRoom(room, index);
      const started = await Promise.all(
        executors.map((rankOptions, rank) => {
          const bell = executorBells[rank];
          invariant(bell !== undefined, 'one doorbell per executor');
          const options = { ...rankOptions, ...ranks };
          const start = { options, kv, engineModule: executorModule, bell, schedulerBell, plans, results, lockstep, closeLimitMs, spinUs };
          const number = index * executors.length + rank;
          return spawn({ actor: { kind: 'executor', start }, index: number, transfer: [], bell, onProgress: progress.of(rank) });
        }),
      );
      const capacity = together(started.map((s) => s.capacity));
      const [front, theirs] = createLink(null, schedulerBell);
      const board = groups.length === 1 ? null : createBoard(capacity.numBlocks);
      const start = {
        options: {
          ...options,
          numBlocks: capacity.numBlocks,
          numSwapBlocks: capacity.numSwapBlocks,
          swapCostTokens: swapCostTokens(capacity.blockBytes, capacity.parameters, operationsPerByte),
          epoch,
        },
        bell: schedulerBell,
        front: theirs,
        plans,
        results,
        executorBells,
        counters,
        group: index,
        room,
        board,
        spinUs,
      };
      const { child } = await spawn({ actor: { kind: 'scheduler', start }, index, transfer: [theirs.port], bell: schedulerBell });
      this.capacity = capacity;
      this.port = {
        scheduler: child,
        schedulerBell,
        executors: started.map((s) => s.child),
        front,
        counters,
        capacity,
        board,
        spins: spinUs > 0,
      };
    };
    return new Children(this.#options, bringUp, part);
  }
}

/** What all ranks have together: they agreed on the number of blocks, and each holds its share of every one. */
function together(capacities: readonly (Capacity | null)[]): Capacity {
  const all = capacities.filter((c) => c !== null);
  const [first] = all;
  invariant(first !== undefined && all.length === capacities.length, 'an executor reported no capacity');
  const sum = (of: (c: Capacity) => number): number => all.reduce((total, c) => total + of(c), 0);
  return {
    ...first,
    numBlocks: Math.min(...all.map((c) => c.numBlocks)),
    numSwapBlocks: Math.min(...all.map((c) => c.numSwapBlocks)),
    blockBytes: sum((c) => c.blockBytes),
    weightBytes: sum((c) => c.weightBytes),
    backend: all.length === 1 ? first.backend : `${all.length} ranks of ${first.backend}`,
  };
}

interface Spawned {
  readonly child: Child;
  readonly capacity: Capacity | null;
}

class EndedEarly extends Error {
  readonly ending: Ending;
  constructor(ending: Ending) {
    super(ending.failure.message ?? ending.failure.kind);
    this.ending = ending;
  }
}

/** How long the end of a rank waits for that of the one which caused it. */
const CAUSE_LIMIT_MS = 2000;

type Spawn = (start: ChildStart) => Promise<Spawned>;

/**
 * A life made of children that are started by `bringUp`, one after the other or side by side. `part` wakes those that wait for each other
 * in native calls; it is called, with the reason, whenever one of them ends or is to end.
 */
class Children implements Life {
  readonly ready: Promise<Ending | null>;
  readonly ended: Promise<Ending>;
  readonly #options: ChildOptions;
  readonly #children: Child[] = [];
  readonly #part: (why: string) => void;
  #stopping = false;
  #firstEnd: (ending: Ending) => void = () => {};

  constructor(options: ChildOptions, bringUp: (spawn: Spawn) => Promise<void>, part: (why: string) => void = () => {}) {
    this.#options = options;
    this.#part = part;
    this.ended = new Promise((resolve) => {
      this.#firstEnd = resolve;
    });
    this.ready = bringUp((start) => this.#spawn(start)).then(
      () => null,
      (error: unknown) => (error instanceof EndedEarly ? error.ending : broken(error)),
    );
  }

  async stop(limitMs: number): Promise<boolean> {
    this.#stopping = true;
    // They are told first, so that those who wake know why.
    const gone = this.#children.map((child) => child.stop(limitMs));
    this.#part('the engine was stopped');
    return (await Promise.all(gone)).every(Boolean);
  }

  kill(ending: Ending): void {
    this.#stopping = true;
    this.#firstEnd(ending);
    for (const child of this.#children) child.giveUp();
    this.#part(ending.failure.message ?? ending.failure.kind);
  }

  async #spawn(start: ChildStart): Promise<Spawned> {
    if (this.#stopping) throw new EndedEarly({ failure: { kind: 'shutting_down' }, fatal: false });
    const child = new Child(this.#options, start);
    this.#children.push(child);
    const ended = child.ended.then(async (ending) => {
      this.#part(`the ${child.name} ended`);
      // The end of one of several comes on another port, and may come later than what it brings about.
      if (ending.because !== undefined) await Promise.race([this.ended, sleep(CAUSE_LIMIT_MS, null, { ref: false })]);
      this.#firstEnd(ending);
      return ending;
    });
    const early = ended.then((ending) => {
      throw new EndedEarly(ending);
    });
    return { child, capacity: await Promise.race([child.ready, early]) };
  }
}

/** A bug here, not in an actor. */
function broken(error: unknown): Ending {
  return { failure: { kind: 'internal', message: error instanceof Error ? error.message : String(error) }, fatal: true };
}
