/**
 * How executors of groups that share experts (parallel.enable_dp_attention) stay in step without a scheduler knowing. Every step of one has
 * collectives with all others, so each has to submit as many steps: who has no plan while another is ahead submits an empty step. One word
 * an executor, in shared memory, counts what it has submitted, modulo 2^32; who adds to it rings all that it has left behind.
 *
 * Nobody waits for ever: of the executors with the fewest steps submitted, none waits for a step that the others have not submitted too, so
 * each of them comes to an end with what it has in flight, and then submits. In that executor's thread; called between two sleeps on its
 * doorbell, which it reads before it looks here.
 */
import { type Doorbell, ring } from '../runtime/doorbell.js';

/** Of one life of the groups. */
export interface LockstepMemory {
  /** Steps submitted, of each executor. */
  readonly submitted: Int32Array<SharedArrayBuffer>;
  readonly bells: readonly Doorbell[];
}

export function createLockstep(bells: readonly Doorbell[]): LockstepMemory {
  return { submitted: new Int32Array(new SharedArrayBuffer(4 * bells.length)), bells };
}

/** As executor `rank` sees it. */
export class Lockstep {
  readonly #memory: LockstepMemory;
  readonly #rank: number;

  constructor(memory: LockstepMemory, rank: number) {
    this.#memory = memory;
    this.#rank = rank;
  }

  /** Whether another one has submitted more steps. */
  get behind(): boolean {
    const own = this.#count(this.#rank);
    return this.#memory.bells.some((_, rank) => ((this.#count(rank) - own) | 0) > 0);
  }

  /** To be called for each step, once it is submitted. */
  add(): void {
    const { submitted, bells } = this.#memory;
    const own = (Atomics.add(submitted, this.#rank, 1) + 1) | 0;
    for (const [rank, bell] of bells.entries()) if (((own - this.#count(rank)) | 0) > 0) ring(bell);
  }

  #count(rank: number): number {
    return Atomics.load(this.#memory.submitted, rank);
  }
}
