/**
 * Engine groups that share experts (parallel.enable_dp_attention) as one unit of failure: each has a scheduler and a KV cache of its own, but
 * no step of one goes on without the executors of all, so they start and end together. Main thread; started and stopped by the supervisor.
 */

import { createLockstep } from '../../actors/executor/lockstep.js';
import { createDoorbell } from '../../actors/runtime/doorbell.js';
import { invariant } from '../../actors/runtime/invariant.js';
import { loadAddon } from '../../native/index.js';
import type { EngineGroup } from './actor-units.js';
import type { Ending } from './child-actor.js';
import type { Life, Unit } from './supervisor.js';

export class JoinedGroups implements Unit {
  readonly name = 'engine';
  readonly stuck: Ending;
  readonly groups: readonly EngineGroup[];

  constructor(groups: readonly EngineGroup[]) {
    const [first] = groups;
    invariant(first !== undefined, 'joined groups: there is none');
    this.groups = groups;
    this.stuck = first.stuck;
  }

  start(): Life {
    const addon = loadAddon();
    const group = addon.newRankGroup();
    const lockstep = createLockstep(this.groups.map(() => createDoorbell()));
    // Behind what the caller does now: the actors of all groups are told that they are to stop before any wakes of this.
    const part = (why: string): void => queueMicrotask(() => addon.endRankGroup(group, why));
    return new JoinedLife(this.groups.map((one) => one.start({ group, lockstep, part })));
  }
}

class JoinedLife implements Life {
  readonly ready: Promise<Ending | null>;
  readonly ended: Promise<Ending>;
  readonly #lives: readonly Life[];

  constructor(lives: readonly Life[]) {
    this.#lives = lives;
    this.ended = Promise.race(lives.map((life) => life.ended));
    const failed = new Promise<Ending>((resolve) => {
      for (const { ready } of lives) void ready.then((ending) => ending !== null && resolve(ending));
    });
    this.ready = Promise.race([failed, Promise.all(lives.map((life) => life.ready)).then(() => null)]);
  }

  async stop(limitMs: number): Promise<boolean> {
    return (await Promise.all(this.#lives.map((life) => life.stop(limitMs)))).every(Boolean);
  }

  kill(ending: Ending): void {
    for (const life of this.#lives) life.kill(ending);
  }
}
