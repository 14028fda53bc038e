/**
 * When each step of the bench engine was submitted and done, in memory that the engine's thread writes and the main thread of the same
 * process reads; and how long a step takes, which the main thread may change at any time. A ring: the oldest steps are overwritten.
 */

/** On the system's monotonic clock, microseconds: comparable between threads and processes of one machine. */
export function clockUs(): number {
  return Number(process.hrtime.bigint()) / 1000;
}

export interface StepTimes {
  /** `submit` was called. */
  readonly submitted: number;
  /** The step before was over and this one submitted, whichever was later. */
  readonly began: number;
  /** `wait` returned its result. */
  readonly done: number;
  /** The device had nothing to do since the step before, and how long. */
  readonly idle: number;
}

/** The key of the environment data by which the threads find the memory. */
export const STEP_LOG = 'inferd-bench-step-log';

const CAPACITY = 2 ** 16;
const STEP_US = 0;
const STEPS = 1;
const HEAD = 8;
const WORDS = 4;

export class StepLog {
  readonly memory: SharedArrayBuffer;
  readonly #cells: Float64Array;

  constructor(memory = new SharedArrayBuffer(8 * (HEAD + CAPACITY * WORDS))) {
    this.memory = memory;
    this.#cells = new Float64Array(memory);
  }

  get stepUs(): number {
    return this.#cells[STEP_US] ?? 0;
  }

  set stepUs(us: number) {
    this.#cells[STEP_US] = us;
  }

  /** Steps done so far. */
  get steps(): number {
    return this.#cells[STEPS] ?? 0;
  }

  add({ submitted, began, done, idle }: StepTimes): void {
    const count = this.steps;
    const at = HEAD + (count % CAPACITY) * WORDS;
    this.#cells[at] = submitted;
    this.#cells[at + 1] = began;
    this.#cells[at + 2] = done;
    this.#cells[at + 3] = idle;
    this.#cells[STEPS] = count + 1;
  }

  /** The steps after the first `from`, as far as they are still there. */
  since(from: number): StepTimes[] {
    const times: StepTimes[] = [];
    for (let step = Math.max(from, this.steps - CAPACITY); step < this.steps; step++) {
      const at = HEAD + (step % CAPACITY) * WORDS;
      const [submitted = 0, began = 0, done = 0, idle = 0] = this.#cells.subarray(at, at + WORDS);
      times.push({ submitted, began, done, idle });
    }
    return times;
  }
}
