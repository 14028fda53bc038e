/** Keeps the process alive while somebody waits for the engine, whose own threads do not. Main thread. */

/** Nothing happens then: an open timer is what Node waits for. */
const NEVER_MS = 2 ** 30;

export class KeepAlive {
  readonly #timer = setInterval(() => {}, NEVER_MS);

  /** At first the process is kept. */
  hold(on: boolean): void {
    if (on) this.#timer.ref();
    else this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
