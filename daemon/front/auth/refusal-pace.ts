/**
 * How fast wrong credentials are refused: the first ones at once, a stream of them with a pause for each, in which nothing is read from its
 * connection. So who tries tokens by the thousand waits, instead of everybody else; a right credential is never looked at here. Held are
 * at most `server.max_connections` connections with `server.max_requests_per_connection` requests each. Main thread.
 *
 * A bucket of tokens (Turner 1986) for all connections together: whoever floods can open many.
 */
import { setTimeout } from 'node:timers/promises';

/** Refusals at once: a client that looks around with the wrong token does not notice anything. */
const BURST = 512;
const PER_SECOND = 64;
/** Pause of each refusal beyond. */
const PAUSE_MS = 1000;

/** What can be told to stop reading: a connection. */
interface Readable {
  pause(): unknown;
  resume(): unknown;
}

export class RefusalPace {
  readonly #now: () => number;
  readonly #sleep: (ms: number) => Promise<unknown>;
  #left = BURST;
  #at: number;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(
    now: () => number = () => performance.now(),
    sleep = (ms: number): Promise<unknown> => setTimeout(ms, undefined, { ref: false }),
  ) {
    this.#now = now;
    this.#sleep = sleep;
    this.#at = now();
  }

  /** A refusal is due: how long it has to wait, ms. */
  delayMs(): number {
    const now = this.#now();
    this.#left = Math.min(BURST, this.#left + ((now - this.#at) / 1000) * PER_SECOND);
    this.#at = now;
    if (this.#left < 1) return PAUSE_MS;
    this.#left--;
    return 0;
  }

  /** `refusal` when it may be told. */
  async hold<T>(refusal: T, delayMs: number, connection: Readable | undefined): Promise<T> {
    connection?.pause();
    await this.#sleep(delayMs);
    connection?.resume();
    return refusal;
  }
}
