/**
 * Measures, in the thread that makes it, how long the event loop was kept from turning. `busyMs` counts processor time of this thread
 * only, so that a crowded machine does not look like a blocked loop; where the system does not tell it (only Linux does), wall time
 * stands in.
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { threadCpuClock } from '../../actors/runtime/cpu-time.js';

const LOOK_EVERY_MS = 2;

export interface LoopFigures {
  /** The longest stretch between two turns of the loop, in processor time of its thread, ms. */
  readonly busyMs: number;
  /** The longest and the 99th percentile of the delay that perf_hooks saw, in wall time, ms. */
  readonly delayMs: number;
  readonly delayP99Ms: number;
}

export class LoopProbe {
  readonly #delay: IntervalHistogram = monitorEventLoopDelay({ resolution: LOOK_EVERY_MS });
  readonly #now = threadCpuClock() ?? (() => performance.now());
  #last = 0;
  #longest = 0;

  constructor() {
    this.#delay.enable();
    this.#last = this.#now();
    setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  /** The figures since the last call. */
  take(): LoopFigures {
    this.#look();
    const { max, min } = this.#delay;
    const taken = {
      busyMs: this.#longest,
      delayMs: max < min ? 0 : max / 1e6 - LOOK_EVERY_MS,
      delayP99Ms: this.#delay.percentile(99) / 1e6 - LOOK_EVERY_MS,
    };
    this.#delay.reset();
    this.#longest = 0;
    return taken;
  }

  #look(): void {
    const now = this.#now();
    this.#longest = Math.max(this.#longest, now - this.#last);
    this.#last = now;
  }
}
