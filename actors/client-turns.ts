/**
 * Clients take turns: gives each request its place in the order of waiting ones, so that a client with hundreds of them holds up another
 * client's first one by little more than what runs already. Used by client.ts on the main thread; tokenizers and the scheduler only
 * compare the numbers.
 *
 * Method: start-time fair queueing (Goyal, Vin and Cheng, 1996), every request of the same weight. A client's next turn is one more than
 * its last, but none before the turn that is being served. The smaller turn goes first, and among equals the older request: so clients
 * that ask seldom are served first come, first served, and so are the requests of one client among themselves.
 */
import type { ClientKey } from './client-types.js';

export class Turns {
  /** The last turn that each client took; goes with the client. */
  readonly #last = new WeakMap<ClientKey, number>();
  #served = 0;

  /** The latest turn that began to run, which is that of a newcomer. */
  get served(): number {
    return this.#served;
  }

  /** The turn of a new request of `client`. */
  take(client: ClientKey): number {
    const turn = Math.max(this.#served, (this.#last.get(client) ?? -1) + 1);
    this.#last.set(client, turn);
    return turn;
  }

  /** A request with this turn began to run. */
  began(turn: number): void {
    this.#served = Math.max(this.#served, turn);
  }

  /** A request of `client` ended before it ran. Only the last turn is free again: older requests must stay ahead of newer ones. */
  giveBack(client: ClientKey, turn: number): void {
    if (this.#last.get(client) === turn) this.#last.set(client, turn - 1);
  }
}
