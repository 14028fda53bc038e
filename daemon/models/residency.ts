/**
 * Which models are loaded when: who waits for what, what is loaded next, and what makes room for it. Pure: it hears what happened, and
 * what is to be done comes out through `Effects`; clocks, memory and engines are others' business.
 *
 *   unloaded --(asked for, room)--> loading --> loaded --(unused, asked, or room needed)--> unloading --> unloaded
 *                                      \-> failed    \--(engine gave up)--> unloading --> failed
 *
 * One model is loaded at a time, so that memory can be measured before each; those that are asked for meanwhile wait in the order in
 * which they were. Where there is no room, models that nobody uses leave, the one unused for longest first; then those in use are
 * marked as leaving: who runs goes on, who comes waits. So a stream of requests for one model cannot keep another out for ever.
 * Invariants: each waiter hears exactly one end; a model in use or pinned never makes room; loaded and loading models together are
 * never more than `maxLoaded`. Effects may not call back before the call that caused them returns.
 */
import type { Failure } from '../../actors/messages/errors.js';

export type Phase = 'unloaded' | 'loading' | 'loaded' | 'unloading' | 'failed';

export interface ResidencySettings {
  /** Models that are loaded at a time. */
  readonly maxLoaded: number;
  /** Milliseconds unused after which a model leaves; 0 = never. */
  readonly keepAliveMs: number;
  /** Those who wait, together. */
  readonly maxWaiting: number;
  isPinned(name: string): boolean;
  /** Loaded at the start: stays while there is room. */
  isKept(name: string): boolean;
}

export interface Room {
  /** What stands in the way of loading `name` once `gone` have left, as a sentence's end ("needs 5 GiB, …"); null when it fits. */
  lacks(name: string, gone: readonly string[]): string | null;
}

/** Somebody who waits for a model. */
export interface Waiter {
  /** It is loaded; the waiter uses it from now on, until `release` with this generation. */
  granted(generation: number): void;
  refused(failure: Failure): void;
}

export interface Effects {
  /** Start it, then say `loaded` or `loadFailed`. */
  load(name: string): void;
  /** Stop it, then say `gone`. */
  unload(name: string): void;
}

/** A model that failed may be tried again by a request after so long; by models.load at once. */
const RETRY_MS = 60_000;

interface Entry {
  readonly name: string;
  phase: Phase;
  /** Leases of the present life. */
  users: number;
  /** Counts lives, so that a lease of an earlier one is told from those of this. */
  generation: number;
  waiters: Set<Waiter>;
  /** Nobody new may use it: by order, or to make room for the model that is next. */
  leaving: 'asked' | 'room' | null;
  lastUsedMs: number;
  failure: Failure | null;
  failedMs: number;
}

/** A model as others may see it. */
export type ResidentFacts = Readonly<Pick<Entry, 'phase' | 'users' | 'lastUsedMs' | 'failure'>>;

export class Residency {
  readonly #settings: () => ResidencySettings;
  readonly #room: Room;
  readonly #effects: Effects;
  readonly #entries = new Map<string, Entry>();
  /** Names of models to be loaded, in order. */
  #queue: string[] = [];
  #numWaiting = 0;
  #stopped = false;

  constructor(settings: () => ResidencySettings, room: Room, effects: Effects) {
    this.#settings = settings;
    this.#room = room;
    this.#effects = effects;
  }

  /** Uses a loaded model at once; its generation, or null when it must be waited for. */
  use(name: string, nowMs: number): number | null {
    const entry = this.#entries.get(name);
    if (entry === undefined || entry.phase !== 'loaded' || entry.leaving !== null || this.#stopped) return null;
    entry.users++;
    entry.lastUsedMs = nowMs;
    return entry.generation;
  }

  /** Waits for a model. `explicit`: also for one that failed lately. The waiter may hear before this returns. */
  wait(name: string, waiter: Waiter, nowMs: number, explicit = false): void {
    const entry = this.#entry(name, nowMs);
    const refusal = this.#refusal(entry, nowMs, explicit);
    const generation = refusal === null ? this.use(name, nowMs) : null;
    if (refusal !== null) waiter.refused(refusal);
    else if (generation !== null) waiter.granted(generation);
    else {
      entry.waiters.add(waiter);
      this.#numWaiting++;
      this.#enqueue(entry);
      this.#advance(nowMs);
    }
  }

  /** A waiter leaves by itself: it hears nothing any more. */
  leave(name: string, waiter: Waiter, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry === undefined || !entry.waiters.delete(waiter)) return;
    this.#numWaiting--;
    this.#advance(nowMs);
  }

  /** A lease is given back. */
  release(name: string, generation: number, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry === undefined || entry.generation !== generation || entry.users === 0) return;
    entry.users--;
    entry.lastUsedMs = nowMs;
    if (entry.leaving !== null) this.#advance(nowMs);
  }

  /** Unloads a model, pinned or not, when those who use it have ended. False: it is not loaded. */
  unload(name: string, nowMs: number): boolean {
    const entry = this.#entries.get(name);
    if (entry === undefined) return false;
    if (entry.phase === 'unloading') return true;
    if (entry.phase !== 'loaded' && entry.phase !== 'loading') {
      if (entry.phase === 'failed') this.#forgive(entry);
      return false;
    }
    entry.leaving = 'asked';
    if (entry.phase === 'loading') {
      this.#refuseAll(entry, { kind: 'model_loading', message: `The model "${name}" was unloaded while it was being loaded` });
      this.#depart(entry);
    }
    this.#advance(nowMs);
    return true;
  }

  // --- what happened ---

  loaded(name: string, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry?.phase !== 'loading') return;
    entry.phase = 'loaded';
    entry.lastUsedMs = nowMs;
    for (const waiter of this.#takeWaiters(entry)) {
      entry.users++;
      waiter.granted(entry.generation);
    }
    this.#advance(nowMs);
  }

  /** Nothing of it is left. */
  loadFailed(name: string, failure: Failure, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry?.phase !== 'loading') return;
    // For want of memory: the model is as good as it was.
    if (failure.kind === 'out_of_memory' || failure.kind === 'shutting_down') entry.phase = 'unloaded';
    else this.#fail(entry, failure, nowMs);
    this.#refuseAll(entry, failure);
    this.#advance(nowMs);
  }

  /** The engine of a loaded model ended by itself, and its requests with it. */
  gaveUp(name: string, failure: Failure, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry?.phase !== 'loaded') return;
    entry.failure = failure;
    this.#depart(entry);
    this.#refuseAll(entry, failure);
    this.#advance(nowMs);
  }

  /** What `unload` asked for is done. */
  gone(name: string, nowMs: number): void {
    const entry = this.#entries.get(name);
    if (entry?.phase !== 'unloading') return;
    entry.phase = 'unloaded';
    entry.leaving = null;
    if (entry.failure !== null) this.#fail(entry, entry.failure, nowMs);
    if (entry.waiters.size > 0) this.#enqueue(entry);
    this.#advance(nowMs);
  }

  /** Unloads what was unused for too long. */
  expire(nowMs: number): void {
    const { keepAliveMs, isPinned, isKept } = this.#settings();
    if (keepAliveMs === 0) return;
    for (const entry of this.#entries.values()) {
      const idle = entry.phase === 'loaded' && entry.users === 0 && nowMs - entry.lastUsedMs >= keepAliveMs;
      if (idle && !isPinned(entry.name) && !isKept(entry.name)) entry.leaving = 'asked';
    }
    this.#advance(nowMs);
  }

  /** Nobody gets anything any more. */
  stop(): void {
    this.#stopped = true;
    for (const entry of this.#entries.values()) this.#refuseAll(entry, { kind: 'shutting_down' });
  }

  facts(name: string): ResidentFacts | null {
    return this.#entries.get(name) ?? null;
  }

  /** Models that hold memory or are about to. */
  resident(): readonly string[] {
    return [...this.#entries.values()].filter(({ phase }) => holdsMemory(phase)).map(({ name }) => name);
  }

  /** @throws when the books are wrong. For tests. */
  checkIntegrity(): void {
    const all = [...this.#entries.values()];
    const waiting = all.reduce((sum, { waiters }) => sum + waiters.size, 0);
    if (waiting !== this.#numWaiting) throw new Error(`${this.#numWaiting} wait, and ${waiting} are in the books`);
    if (all.filter(({ phase }) => phase === 'loading').length > 1) throw new Error('two models are being loaded');
    for (const { name, phase, users, waiters, leaving } of all) {
      if (users > 0 && phase !== 'loaded') throw new Error(`${name} is ${phase} and in use`);
      if (waiters.size > 0 && phase === 'loaded' && leaving === null) throw new Error(`${name} is loaded and waited for`);
      if (waiters.size > 0 && phase === 'unloaded' && !this.#queue.includes(name))
        throw new Error(`${name} is waited for and never loaded`);
    }
  }

  // --- the rest ---

  /** Why nobody can wait for a model now, or null. */
  #refusal({ phase, failure, failedMs }: Entry, nowMs: number, explicit: boolean): Failure | null {
    if (this.#stopped) return { kind: 'shutting_down' };
    if (phase === 'failed' && !explicit && nowMs - failedMs < RETRY_MS) return failure ?? { kind: 'engine_failure' };
    if (phase === 'loaded' || this.#numWaiting < this.#settings().maxWaiting) return null;
    return { kind: 'overloaded', message: 'Too many requests wait for models to be loaded; try again later' };
  }

  #entry(name: string, nowMs: number): Entry {
    const known = this.#entries.get(name);
    if (known !== undefined) return known;
    const fresh: Entry = {
      name,
      phase: 'unloaded',
      users: 0,
      generation: 0,
      waiters: new Set(),
      leaving: null,
      lastUsedMs: nowMs,
      failure: null,
      failedMs: 0,
    };
    this.#entries.set(name, fresh);
    return fresh;
  }

  #enqueue({ name, phase }: Entry): void {
    if ((phase === 'unloaded' || phase === 'failed') && !this.#queue.includes(name)) this.#queue.push(name);
  }

  /** Does what can be done now. */
  #advance(nowMs: number): void {
    if (this.#stopped) return;
    this.#queue = this.#queue.filter((name) => (this.#entries.get(name)?.waiters.size ?? 0) > 0);
    // Room is made for the first in the queue only, and anew each time: it may need none any more.
    for (const entry of this.#entries.values()) if (entry.leaving === 'room' && entry.phase === 'loaded') entry.leaving = null;
    while (this.#queue.length > 0 && !this.#serveFirst()) this.#queue.shift();
    for (const entry of this.#entries.values()) {
      if (entry.phase !== 'loaded') continue;
      if (entry.leaving !== null && entry.users === 0) this.#depart(entry);
      else if (entry.leaving === null && entry.waiters.size > 0) this.#grantAll(entry, nowMs);
    }
  }

  /** Loads the first in the queue, or begins to make room. False: it was refused, or its load began. */
  #serveFirst(): boolean {
    const first = this.#entries.get(this.#queue[0] ?? '');
    if (first === undefined) return false;
    const resident = [...this.#entries.values()].filter(({ phase }) => holdsMemory(phase));
    if (resident.some(({ phase }) => phase === 'loading')) return true;
    const gone = resident.filter((entry) => entry.phase === 'unloading' || entry.leaving !== null);
    const { maxLoaded, isPinned } = this.#settings();
    const candidates = resident
      .filter((entry) => !gone.includes(entry) && !isPinned(entry.name))
      .sort((a, b) => Number(a.users > 0) - Number(b.users > 0) || a.lastUsedMs - b.lastUsedMs);
    for (;;) {
      const lack = this.#lack(first, resident, gone, maxLoaded);
      if (lack === null) break;
      const next = candidates.shift();
      if (next === undefined) {
        this.#refuseFirst(first, lack, resident, gone);
        return false;
      }
      gone.push(next);
    }
    for (const entry of gone) entry.leaving ??= 'room';
    if (gone.length > 0) return true;
    first.phase = 'loading';
    first.generation++;
    first.failure = null;
    this.#effects.load(first.name);
    return false;
  }

  #lack({ name }: Entry, resident: readonly Entry[], gone: readonly Entry[], maxLoaded: number): string | null {
    const left = resident.length - gone.length;
    if (left >= maxLoaded) return `would be one more than models.max_loaded = ${maxLoaded}`;
    return this.#room.lacks(
      name,
      gone.map((entry) => entry.name),
    );
  }

  #refuseFirst(first: Entry, lack: string, resident: readonly Entry[], gone: readonly Entry[]): void {
    // What is pinned is all that is left to name.
    const others = resident.filter((entry) => !gone.includes(entry)).map(({ name }) => `"${name}" (pinned)`);
    const advice = others.length === 0 ? '' : `; unload ${others.join(' or ')} first`;
    this.#refuseAll(first, { kind: 'out_of_memory', message: `The model "${first.name}" ${lack}${advice}` });
  }

  #grantAll(entry: Entry, nowMs: number): void {
    entry.lastUsedMs = nowMs;
    for (const waiter of this.#takeWaiters(entry)) {
      entry.users++;
      waiter.granted(entry.generation);
    }
  }

  #refuseAll(entry: Entry, failure: Failure): void {
    for (const waiter of this.#takeWaiters(entry)) waiter.refused(failure);
  }

  #takeWaiters(entry: Entry): Waiter[] {
    const waiters = [...entry.waiters];
    entry.waiters.clear();
    this.#numWaiting -= waiters.length;
    return waiters;
  }

  #depart(entry: Entry): void {
    entry.phase = 'unloading';
    entry.users = 0;
    entry.generation++;
    this.#effects.unload(entry.name);
  }

  #fail(entry: Entry, failure: Failure, nowMs: number): void {
    entry.phase = 'failed';
    entry.failure = failure;
    entry.failedMs = nowMs;
  }

  #forgive(entry: Entry): void {
    entry.phase = 'unloaded';
    entry.failure = null;
  }
}

function holdsMemory(phase: Phase): boolean {
  return phase === 'loading' || phase === 'loaded' || phase === 'unloading';
}
