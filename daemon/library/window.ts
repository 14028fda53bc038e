/**
 * Lets so many pieces of work run at a time; the others wait, in order. Keeps the engine's queue short however many prompts a program has:
 * a prompt that waits here costs nothing, takes no turn and has no timeout. Main thread.
 */
export class Window {
  #free: number;
  #waiting: (() => void)[] = [];

  constructor(size: number) {
    this.#free = size;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next(); // takes this place
    }
  }
}
