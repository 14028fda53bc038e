/** Several schedulers behind one router, each with the plan interpreter in place of its executors, all going on by one step at a time. */
import assert from 'node:assert/strict';
import { BoardReader, BoardWriter, createBoard } from '../../../actors/routing/board.js';
import { createQueueRoom, openQueueRoom, QueueRoom } from '../../../actors/routing/queue-room.js';
import { Router } from '../../../actors/routing/router.js';
import type { SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import { type Ask, defaultOptions, Rig } from '../scheduler/rig.js';

export interface Sent {
  readonly group: number;
  readonly rig: Rig;
  readonly id: number;
}

const nothing = { promptTokens: 0, waiting: 0 };

export class Cluster {
  readonly rigs: readonly Rig[];
  /** Steps so far. */
  steps = 0;
  readonly #boards: readonly { readonly writer: BoardWriter; readonly board: BoardReader }[];
  readonly #router: Router;

  constructor(numGroups: number, options: Partial<SchedulerOptions>) {
    const all = { ...defaultOptions, ...options };
    const room = createQueueRoom(all.maxQueue, numGroups);
    this.#router = new Router(all.blockSize);
    this.rigs = Array.from({ length: numGroups }, (_, group) => {
      openQueueRoom(room, group);
      return new Rig(all, 1, new QueueRoom(room, group));
    });
    this.#boards = this.rigs.map((rig) => {
      const memory = createBoard(all.numBlocks);
      const writer = new BoardWriter(memory);
      rig.scheduler.showOn(writer);
      return { writer, board: new BoardReader(memory) };
    });
  }

  /** Sends a request where the router says, or to `group`. */
  send(ask: Ask, group?: number): Sent {
    const candidates = this.#boards.map(({ board }) => ({ board, onTheWay: nothing }));
    const choice = this.#router.choose(candidates, Int32Array.from(ask.prompt));
    const index = group ?? choice.index;
    const rig = this.rigs[index];
    assert.ok(rig);
    const id = rig.admit({ ...ask, newTokens: choice.newTokens });
    this.#tell();
    return { group: index, rig, id };
  }

  /** One step of each group that has something to do. */
  step(): void {
    this.steps++;
    for (const rig of this.rigs) {
      rig.now = 1000 + this.steps;
      rig.schedule();
      rig.update();
      rig.scheduler.tellRoom();
    }
    this.#tell();
  }

  get busy(): boolean {
    return this.rigs.some(({ scheduler }) => scheduler.hasWork());
  }

  /** Tokens of prompts that were found in prefix caches. */
  get hits(): number {
    return this.rigs.reduce((sum, { scheduler }) => sum + scheduler.stats().tokens.prefix_hit_total, 0);
  }

  #tell(): void {
    for (const [i, { writer }] of this.#boards.entries()) writer.tell(this.rigs[i]!.scheduler.work()); // one each
  }
}

/** Numbers that are the same in each run: 0 <= n < limit. */
export function randoms(seed: number): (limit: number) => number {
  let state = Math.imul(seed, 0x9e3779b1) | 1;
  return (limit) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % limit;
  };
}
