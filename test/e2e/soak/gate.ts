/** Lets clients in while it is open, so that a soak can wait for a moment in which nobody asks anything. */
export class Gate {
  #inside = 0;
  #state: 'open' | 'closed' | 'shut' = 'open';
  #waiting: ((open: boolean) => void)[] = [];
  #emptied: (() => void)[] = [];

  get open(): boolean {
    return this.#state === 'open';
  }

  /** Waits until the gate is open; false when it never will be again. Each true needs one `leave`. */
  async enter(): Promise<boolean> {
    while (this.#state === 'closed') await new Promise<boolean>((resolve) => this.#waiting.push(resolve));
    if (this.#state === 'shut') return false;
    this.#inside++;
    return true;
  }

  leave(): void {
    this.#inside--;
    if (this.#inside === 0) for (const resolve of this.#emptied.splice(0)) resolve();
  }

  /** Lets nobody in and resolves when the last one has left. */
  async close(): Promise<void> {
    if (this.#state === 'open') this.#state = 'closed';
    if (this.#inside > 0) await new Promise<void>((resolve) => this.#emptied.push(resolve));
  }

  reopen(): void {
    if (this.#state === 'closed') this.#state = 'open';
    for (const resolve of this.#waiting.splice(0)) resolve(true);
  }

  /** For good. */
  shut(): void {
    this.#state = 'shut';
    for (const resolve of this.#waiting.splice(0)) resolve(false);
  }
}
