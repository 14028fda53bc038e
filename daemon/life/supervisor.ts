/**
 * Keeps units running: a unit is what must be restarted together (one child of a one_for_one group, or a whole one_for_all group, as
 * topology.ts says). Main thread; knows nothing of models or messages. After Erlang/OTP's supervisors.
 *
 *   starting --all ready--> running --a unit ends--> (down) --start again--> running
 *                                   --too many restarts, or a fatal end--> failed          any --stop()--> stopped
 *
 * What supervision does not promise: the message that an actor was working on is lost with it. Whoever sent it is told through `onDown`.
 * A thread that hangs in a native call cannot be ended. Where a successor can live beside it (tokenizers), that is started, and a few
 * such threads are left behind; where it cannot (the engine), that is the end.
 * Invariants: a unit has at most one life at a time; onDown and onUp alternate per unit; after `stop` or failure no hook is called.
 */
import type { Failure } from '../../actors/messages/errors.js';
import { nowMs } from '../../actors/runtime/clock.js';
import type { Log } from '../../actors/runtime/log.js';
import type { Ending } from './child-actor.js';

/** One life of a unit. */
export interface Life {
  /** Null when it is ready, or how it ended before that. Never rejects. */
  readonly ready: Promise<Ending | null>;
  /** Resolves with the first unasked end of one of its actors; the others may still run. */
  readonly ended: Promise<Ending>;
  /**
   * Asks all actors to stop, side by side, and terminates those that have not within `limitMs`. Resolves when all are over: false when a
   * thread does not exit. May be called at any time, more than once.
   */
  stop(limitMs: number): Promise<boolean>;
  /** Terminates all actors now; `ended` resolves with `ending`, whether their threads exit or not. */
  kill(ending: Ending): void;
}

export interface Unit {
  readonly name: string;
  /** What a thread of it that does not exit means: how the whole ends, or null when a successor may start beside it. */
  readonly stuck: Ending | null;
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
  /** How long what is left of a unit may take to stop before it is terminated, ms: the step that it runs may be a long one. */
  readonly stopLimitMs: number;
  readonly log: Log;
  readonly hooks: SupervisorHooks;
}

const stopped: Ending = { failure: { kind: 'shutting_down' }, fatal: false };

/** When everything stops, an actor that has not by then is terminated. Below what the daemon waits for the engine. */
const STOP_LIMIT_MS = 3000;
/** Each thread left behind keeps its memory and may keep one of the four threads that serve files and encoding. */
const MAX_LEFT_BEHIND = 2;
const tooManyLeft: Ending = {
  failure: { kind: 'engine_failure', message: 'Too many threads do not return from native calls, so the process has to end' },
  fatal: false,
};

/** A unit and its present life. */
interface Supervised {
  readonly unit: Unit;
  life: Life | null;
}

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #supervised: readonly Supervised[];
  /** Times of recent restarts; at most restarts.max + 1. */
  readonly #restarted: number[] = [];
  /** Lives with a thread that did not exit. */
  #leftBehind = 0;
  #ended = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#supervised = options.units.map((unit) => ({ unit, life: null }));
  }

  /** Starts all units side by side. Null when all are ready, else how the first failed; the others are then stopped. */
  async start(): Promise<Ending | null> {
    const begun = this.#supervised.map((one) => this.#begin(one));
    const failed = new Promise<Ending>((resolve) => {
      for (const one of begun) void one.then((ending) => ending !== null && resolve(ending));
    });
    const all = Promise.all(begun).then((endings) => endings.find((ending) => ending !== null) ?? null);
    const ending = await Promise.race([failed, all]);
    if (ending !== null) await this.stop();
    return ending;
  }

  /** Stops all units side by side. Idempotent. */
  async stop(): Promise<void> {
    this.#ended = true;
    await Promise.all([...this.#supervised].reverse().map(({ life }) => life?.stop(STOP_LIMIT_MS)));
  }

  /** Ends a unit that hangs, as if it had ended by itself with `ending`. */
  kill(unit: Unit, ending: Ending): void {
    this.#supervised.find((one) => one.unit === unit)?.life?.kill(ending);
  }

  /** Starts one unit and watches it. Null when it is ready. */
  async #begin(one: Supervised): Promise<Ending | null> {
    if (this.#ended) return stopped;
    const life = one.unit.start();
    one.life = life;
    const ending = await life.ready;
    if (this.#ended) return stopped;
    if (ending !== null) return ending;
    this.#options.hooks.onUp(one.unit);
    void life.ended.then((ended) => this.#onEnded(one, ended));
    return null;
  }

  async #onEnded(one: Supervised, ending: Ending): Promise<void> {
    if (this.#ended) return;
    const { log, hooks } = this.#options;
    log.error({ unit: one.unit.name, failure: ending.failure, fatal: ending.fatal }, 'an actor ended');
    hooks.onDown(one.unit, ending.failure);
    await this.#restart(one, ending);
  }

  /** Tries until the unit is ready or the restarts are used up. */
  async #restart(one: Supervised, cause: Ending): Promise<void> {
    let last = cause;
    while (!this.#ended) {
      if (last.fatal) return this.#fail(last);
      const stuck = await this.#clear(one);
      if (stuck !== null) return this.#fail(stuck);
      if (!this.#mayRestart()) return this.#fail(last);
      this.#options.log.warn({ unit: one.unit.name, restarts: this.#restarted.length }, 'restarting');
      const ending = await this.#begin(one);
      if (ending === null || this.#ended) return;
      this.#options.log.error({ unit: one.unit.name, failure: ending.failure }, 'a restart failed');
      last = ending;
    }
  }

  /** Stops what is left of the last life. Not null when that did not go and nothing may come after it. */
  async #clear({ unit, life }: Supervised): Promise<Ending | null> {
    if (life === null || (await life.stop(this.#options.stopLimitMs))) return null;
    this.#leftBehind++;
    return unit.stuck ?? (this.#leftBehind > MAX_LEFT_BEHIND ? tooManyLeft : null);
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
