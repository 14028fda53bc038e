/**
 * How many more requests may wait in all engine groups of an engine together: scheduler.max_queue, and one for each free slot. Int32 words in
 * shared memory, which every group's scheduler changes by atomic operations, so that two that admit at the same time never take the last
 * place both.
 *
 *   room = max_queue + sum over groups of (free slots - waiting requests)          [room | group 0: balance, waiting | group 1 ..]
 *
 * A group tells its part when it admits and once a turn. The part of a group that is over is taken out by whoever ended it; what is left of
 * that group can change nothing then.
 */

export type QueueRoomMemory = Int32Array<SharedArrayBuffer>;

const ROOM = 0;
const FIRST = 1;
const CELLS = 2;
/** In place of the balance of a group that is over. */
const OVER = -(2 ** 31);

const balanceAt = (group: number): number => FIRST + CELLS * group;
const waitingAt = (group: number): number => FIRST + CELLS * group + 1;

/** All groups are over at first. */
export function createQueueRoom(maxQueue: number, groups: number): QueueRoomMemory {
  const memory = new Int32Array(new SharedArrayBuffer(4 * (FIRST + CELLS * groups)));
  memory[ROOM] = maxQueue;
  for (let group = 0; group < groups; group++) memory[balanceAt(group)] = OVER;
  return memory;
}

/** A group begins, with nothing. Nobody is left of its last life. */
export function openQueueRoom(memory: QueueRoomMemory, group: number): void {
  closeQueueRoom(memory, group);
  Atomics.store(memory, balanceAt(group), 0);
}

/** A group is over: its part is taken out. */
export function closeQueueRoom(memory: QueueRoomMemory, group: number): void {
  const balance = Atomics.exchange(memory, balanceAt(group), OVER);
  Atomics.store(memory, waitingAt(group), 0);
  if (balance !== OVER) Atomics.sub(memory, ROOM, balance);
}

/** The room as one group's scheduler sees it. */
export class QueueRoom {
  readonly #memory: QueueRoomMemory;
  readonly #group: number;

  constructor(memory: QueueRoomMemory, group: number) {
    this.#memory = memory;
    this.#group = group;
  }

  /** Of an engine with one group. */
  static alone(maxQueue: number): QueueRoom {
    const memory = createQueueRoom(maxQueue, 1);
    openQueueRoom(memory, 0);
    return new QueueRoom(memory, 0);
  }

  /** What the own group has: slots that are free, and requests that wait and have never run. */
  tell(freeSlots: number, waiting: number): void {
    const balance = freeSlots - waiting;
    const change = this.#change(balance);
    if (change === null) return;
    if (change !== 0) Atomics.add(this.#memory, ROOM, change);
    Atomics.store(this.#memory, waitingAt(this.#group), waiting);
  }

  /** Takes a place for one more request, which then waits in the own group. False when there is none. */
  take(): boolean {
    const memory = this.#memory;
    for (let room = Atomics.load(memory, ROOM); room > 0; room = Atomics.load(memory, ROOM)) {
      if (Atomics.compareExchange(memory, ROOM, room, room - 1) !== room) continue;
      const own = Atomics.load(memory, balanceAt(this.#group));
      // A group that is over has no part to keep the place in; what it admits is admitted again elsewhere.
      if (this.#change(own - 1) === null) Atomics.add(memory, ROOM, 1);
      else Atomics.add(memory, waitingAt(this.#group), 1);
      return true;
    }
    return false;
  }

  /** Requests that wait, in all groups. */
  get waiting(): number {
    let sum = 0;
    for (let at = waitingAt(0); at < this.#memory.length; at += CELLS) sum += Atomics.load(this.#memory, at);
    return sum;
  }

  /** Sets the own balance and returns by how much it changed; null when the group is over. */
  #change(balance: number): number | null {
    const memory = this.#memory;
    const at = balanceAt(this.#group);
    const old = Atomics.load(memory, at);
    if (old === OVER || Atomics.compareExchange(memory, at, old, balance) !== old) return null;
    return balance - old;
  }
}
