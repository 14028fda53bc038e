/**
 * Lets so many pieces of work run at a time; the others wait, in order. Keeps the engine's queue short however many prompts a program has:
 * a prompt that waits here costs nothing, takes no turn and has no timeout. Main thread.
 */
export class Window {
  #free: number;
  /** In order. */
  readonly #waiting = new Set<() => void>();

  constructor(size: number) {
    this.#free = size;
  }

  /** @throws the signal's reason, as soon as it fires before `work` begins; what `work` throws */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await this.#turn(signal);
    try {
      return await work();
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) this.#free++;
      else next(); // takes this place
    }
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const goOn = (): void => {
        this.#waiting.delete(goOn);
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.delete(goOn);
        reject(signal?.reason);
      };
      signal?.throwIfAborted();
      this.#waiting.add(goOn);
      signal?.addEventListener('abort', leave, { once: true });
    });
  }
}
