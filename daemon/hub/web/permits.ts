/** A number of permits; whoever finds none waits in line. Bounds the connections of a pull, whatever its files are. */
import { cancelled } from '../error.js';

export class Permits {
  #free: number;
  readonly #line: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Runs `work` with a permit. @throws PullError cancelled when the signal comes while it waits */
  async use<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#line.push(resolve));
    try {
      if (signal.aborted) throw cancelled();
      return await work();
    } finally {
      const next = this.#line.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }
}
