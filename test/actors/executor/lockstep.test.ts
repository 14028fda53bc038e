/** Executors that stay in step: a model of them, whose steps end once all have submitted them, as those with collectives do. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLockstep, Lockstep } from '../../../actors/executor/lockstep.js';
import { createDoorbell, listen } from '../../../actors/runtime/doorbell.js';
import { randomInt, randomSource } from '../../helpers/native/reference-ops.js';

const MAX_IN_FLIGHT = 2;

/** One executor without threads: what it does in a turn, and when it may sleep. */
class Modelled {
  readonly lockstep: Lockstep;
  readonly bell: Int32Array<SharedArrayBuffer>;
  /** Plans that wait for it. */
  plans = 0;
  submitted = 0;
  ended = 0;
  /** Word of its bell as it went to sleep; null: awake. */
  heard: number | null = null;

  constructor(lockstep: Lockstep, bell: Int32Array<SharedArrayBuffer>) {
    this.lockstep = lockstep;
    this.bell = bell;
  }

  /** Submits at most one step. `all`: steps that every executor has submitted. */
  turn(all: number): void {
    const heard = listen(this.bell);
    this.ended = Math.min(this.submitted, all);
    const room = this.submitted - this.ended < MAX_IN_FLIGHT;
    if (room && (this.plans > 0 || this.lockstep.behind)) {
      if (this.plans > 0) this.plans--;
      this.submitted++;
      this.lockstep.add();
      this.heard = null;
    } else this.heard = this.submitted === this.ended ? heard : null;
  }

  get sleeps(): boolean {
    return this.heard !== null && this.heard === listen(this.bell) && this.plans === 0;
  }
}

test('whatever comes when, all plans run, no executor is two steps ahead of all that it waits for, and none sleeps through a step', () => {
  for (const numRanks of [2, 3, 8]) {
    const random = randomSource(numRanks);
    const bells = Array.from({ length: numRanks }, createDoorbell);
    const memory = createLockstep(bells);
    // Counts go round on the way.
    memory.submitted.fill(2 ** 31 - 1000);
    const executors = bells.map((bell, rank) => new Modelled(new Lockstep(memory, rank), bell));
    let given = 0;
    const all = (): number => Math.min(...executors.map(({ submitted }) => submitted));
    for (let turn = 0; turn < 200_000; turn++) {
      const one = executors[randomInt(random, 0, numRanks - 1)] as Modelled; // proof: in range
      if (turn < 100_000 && random() < 0.05) {
        one.plans++;
        given++;
      }
      if (!one.sleeps) one.turn(all());
      const most = Math.max(...executors.map(({ submitted }) => submitted));
      assert.ok(most - all() <= MAX_IN_FLIGHT);
    }
    assert.ok(given > 4000);
    assert.ok(
      executors.every(({ plans, submitted, sleeps }) => plans === 0 && submitted === all() && sleeps),
      `${numRanks} ranks`,
    );
    assert.ok(all() <= given, 'no step without anybody who has a plan');
  }
});

test('an executor is behind when another one is ahead, and only those left behind are rung', () => {
  const bells = [createDoorbell(), createDoorbell(), createDoorbell()];
  const memory = createLockstep(bells);
  const [first, second, third] = bells.map((_, rank) => new Lockstep(memory, rank)) as [Lockstep, Lockstep, Lockstep]; // proof: three bells
  const rung = (): number[] => bells.map(listen);
  const behind = (): boolean[] => [first, second, third].map((one) => one.behind);
  assert.deepEqual(behind(), [false, false, false]);
  first.add();
  assert.deepEqual(
    [behind(), rung()],
    [
      [false, true, true],
      [0, 1, 1],
    ],
  );
  second.add();
  assert.deepEqual(
    [behind(), rung()],
    [
      [false, false, true],
      [0, 1, 2],
    ],
  );
  third.add();
  assert.deepEqual(
    [behind(), rung()],
    [
      [false, false, false],
      [0, 1, 2],
    ],
  );
});
