/**
 * Whether a piece of work is still wanted. What AbortSignal does, without the event machinery of the platform: that costs a request some
 * forty microseconds when the daemon was asleep before. One for each call of a client (rpc/calls.ts) and for each prompt that a tokenizer
 * works on; whoever works for it listens.
 */

export class Cancellation {
  #cancelled = false;
  readonly #listeners = new Set<() => void>();

  get cancelled(): boolean {
    return this.#cancelled;
  }

  /** Calls every listener, once; nothing when it was cancelled before. */
  cancel(): void {
    if (this.#cancelled) return;
    this.#cancelled = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }

  /** Not called when it is cancelled already: look at `cancelled` before. May not throw. */
  listen(listener: () => void): void {
    this.#listeners.add(listener);
  }

  unlisten(listener: () => void): void {
    this.#listeners.delete(listener);
  }
}
