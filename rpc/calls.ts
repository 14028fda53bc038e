/**
 * The unanswered calls of one caller (a connection, or one HTTP body), by id: finds duplicates, bounds their number, cancels them.
 * A call is in the table from before its handler runs until its response exists, so a cancel can never miss it in between.
 */
import type { Failure } from '../actors/messages/errors.js';
import { Cancellation } from '../actors/runtime/cancellation.js';
import { type Id, idKey } from './message.js';

/** A call between its arrival and its response. */
export interface OpenCall {
  readonly cancellation: Cancellation;
  /** Must be called exactly once, when the response exists. */
  close(): void;
}

export class CallTable {
  readonly #limit: number;
  readonly #byId = new Map<string, Cancellation>();
  /** Calls with the id null, which cannot be named: bounded and cancelled on close like the others. */
  readonly #anonymous = new Set<Cancellation>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#byId.size + this.#anonymous.size;
  }

  /** The call, or why it is refused. */
  open(id: Id): OpenCall | Failure {
    const key = id === null ? null : idKey(id);
    if (key !== null && this.#byId.has(key)) {
      return { kind: 'invalid_request', message: 'A request with this id is not answered yet' };
    }
    if (this.size >= this.#limit) {
      return { kind: 'rate_limited', message: `More than ${this.#limit} requests of this connection are not answered yet` };
    }
    const cancellation = new Cancellation();
    if (key === null) this.#anonymous.add(cancellation);
    else this.#byId.set(key, cancellation);
    return {
      cancellation,
      close: () => {
        if (key === null) this.#anonymous.delete(cancellation);
        else this.#byId.delete(key);
      },
    };
  }

  /** Unknown and answered ids are ignored. */
  cancel(id: string | number): void {
    this.#byId.get(idKey(id))?.cancel();
  }

  cancelAll(): void {
    for (const cancellation of [...this.#byId.values(), ...this.#anonymous]) cancellation.cancel();
  }
}
