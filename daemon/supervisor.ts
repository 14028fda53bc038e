/**
 * Keeps units running: a unit is what must be restarted together (one child of a one_for_one group, or a whole one_for_all group, as
 * topology.ts says). Main thread; knows nothing of models or messages. After Erlang/OTP's supervisors.
 *
 *   starting --all ready--> running --a unit ends--> (down) --start again--> running
 *                                   --too many restarts, or a fatal end--> failed          any --stop()--> stopped
 *
 * What supervision does not promise: the message that an actor was working on is lost with it. Whoever sent it is told through `onDown`.
 * Invariants: a unit has at most one life at a time; onDown and onUp alternate per unit; after `stop` or failure no hook is called.
 */
import type { Failure } from '../actors/messages/errors.js';
import { nowMs } from '../actors/runtime/clock.js';
import type { Log } from '../actors/runtime/log.js';
import type { Ending } from './child.js';

/** One life of a unit. */
export interface Life {
  /** Null when it is ready, or how it ended before that. Never rejects. */
  readonly ready: Promise<Ending | null>;
  /** Resolves with the first unasked end of one of its actors; the others may still run. */
  readonly ended: Promise<Ending>;
  /** Stops what still runs, in reverse order of start; resolves when all is gone. May be called at any time, more than once. */
  stop(): Promise<void>;
}

export interface Unit {
  readonly name: string;
  start(): Life;
}

export interface SupervisorHooks {
  /** The unit is ready, for the first time or again. */
  onUp(unit: Unit): void;
  /** The unit ended; what is left of it is being stopped. */
  onDown(unit: Unit, failure: Failure): void;
  /** No more restarts: everything is being stopped. Not called for a failure of the first start. */
  onFailed(ending: Ending): void;
}

export interface SupervisorOptions {
  /** In start order. */
  readonly units: readonly Unit[];
  readonly restarts: { readonly max: number; readonly windowMs: number };
  readonly log: Log;
  readonly hooks: SupervisorHooks;
}

const stopped: Ending = { failure: { kind: 'shutting_down' }, fatal: false };

interface Slot {
  readonly unit: Unit;
  life: Life | null;
}

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #slots: readonly Slot[];
  /** Times of recent restarts; at most restarts.max + 1. */
  readonly #restarted: number[] = [];
  #ended = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#slots = options.units.map((unit) => ({ unit, life: null }));
  }

  /** Starts all units side by side. Null when all are ready, else how the first failed; the others are then stopped. */
  async start(): Promise<Ending | null> {
    const begun = this.#slots.map((slot) => this.#begin(slot));
    const failed = new Promise<Ending>((resolve) => {
      for (const one of begun) void one.then((ending) => ending !== null && resolve(ending));
    });
    const all = Promise.all(begun).then((endings) => endings.find((ending) => ending !== null) ?? null);
    const ending = await Promise.race([failed, all]);
    if (ending !== null) await this.stop();
    return ending;
  }

  /** Stops all units in reverse order. Idempotent. */
  async stop(): Promise<void> {
    this.#ended = true;
    for (const { life } of [...this.#slots].reverse()) await life?.stop();
  }

  /** Starts one unit and watches it. Null when it is ready. */
  async #begin(slot: Slot): Promise<Ending | null> {
    if (this.#ended) return stopped;
    const life = slot.unit.start();
    slot.life = life;
    const ending = await life.ready;
    if (this.#ended) return stopped;
    if (ending !== null) {
      await life.stop();
      return ending;
    }
    this.#options.hooks.onUp(slot.unit);
    void life.ended.then((ended) => this.#onEnded(slot, life, ended));
    return null;
  }

  async #onEnded(slot: Slot, life: Life, ending: Ending): Promise<void> {
    if (this.#ended) return;
    const { log, hooks } = this.#options;
    log.error({ unit: slot.unit.name, failure: ending.failure, fatal: ending.fatal }, 'an actor ended');
    hooks.onDown(slot.unit, ending.failure);
    if (ending.fatal) return this.#fail(ending);
    await life.stop();
    await this.#restart(slot, ending);
  }

  /** Tries until the unit is ready or the restarts are used up. */
  async #restart(slot: Slot, cause: Ending): Promise<void> {
    let last = cause;
    while (!this.#ended) {
      if (!this.#mayRestart()) return this.#fail(last);
      this.#options.log.warn({ unit: slot.unit.name, restarts: this.#restarted.length }, 'restarting');
      const ending = await this.#begin(slot);
      if (ending === null || this.#ended) return;
      this.#options.log.error({ unit: slot.unit.name, failure: ending.failure }, 'a restart failed');
      if (ending.fatal) return this.#fail(ending);
      last = ending;
    }
  }

  /** Counts a restart. False when it would be one too many. */
  #mayRestart(): boolean {
    const { max, windowMs } = this.#options.restarts;
    const now = nowMs();
    this.#restarted.push(now);
    while (this.#restarted[0] !== undefined && now - this.#restarted[0] > windowMs) this.#restarted.shift();
    return this.#restarted.length <= max;
  }

  #fail(ending: Ending): Promise<void> {
    if (this.#ended) return Promise.resolve();
    this.#ended = true;
    this.#options.log.error({ failure: ending.failure, fatal: ending.fatal }, 'giving up');
    this.#options.hooks.onFailed(ending);
    return this.stop();
  }
}
