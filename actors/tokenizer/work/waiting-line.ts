/**
 * Those who wait in a tokenizer until they may go on. Clients take turns: the first of each goes before the second of any, so a client
 * with hundreds of prompts holds up another one's first by a single prompt of its own. Whoever leaves is out of the line at once, and
 * what it held is free. Used by prompt-queue.ts and places.ts; bounded by the front, which hands out no more than tokenizers may hold.
 */
import { InferdError } from '../../messages/errors.js';
import type { Cancellation } from '../../runtime/cancellation.js';

/** Whom something is done for. */
export interface Asker {
  /** Number of the client. */
  readonly client: number;
  /** Fires when nobody waits for it any more. */
  readonly cancellation: Cancellation;
}

export class WaitingLine {
  /** What lets each one go on, by client; the client whose turn is next first, and of one client as they came. */
  readonly #waiting = new Map<number, (() => void)[]>();
  /** The client that went on last. */
  #last: number | null = null;

  /** Somebody of this client goes on without having waited. */
  went(client: number): void {
    this.#last = client;
  }

  /** Resolves when it is the asker's turn. @throws InferdError cancelled as soon as the asker leaves. */
  wait({ client, cancellation }: Asker): Promise<void> {
    return new Promise((resolve, reject) => {
      const goOn = (): void => {
        cancellation.unlisten(leave);
        resolve();
      };
      const leave = (): void => {
        this.#remove(client, goOn);
        reject(new InferdError('cancelled'));
      };
      cancellation.listen(leave);
      const own = this.#waiting.get(client);
      if (own === undefined) this.#waiting.set(client, [goOn]);
      else own.push(goOn);
    });
  }

  /** Lets the next one go on. False when nobody waits. */
  next(): boolean {
    const clients = this.#waiting.keys();
    let client = clients.next().value;
    if (client === this.#last) client = clients.next().value ?? client;
    const own = client === undefined ? undefined : this.#waiting.get(client);
    if (client === undefined || own === undefined) return false;
    this.#last = client;
    this.#waiting.delete(client);
    own.shift()?.();
    if (own.length > 0) this.#waiting.set(client, own); // behind all others
    return true;
  }

  #remove(client: number, goOn: () => void): void {
    const own = this.#waiting.get(client) ?? [];
    const at = own.indexOf(goOn);
    if (at >= 0) own.splice(at, 1);
    if (own.length === 0) this.#waiting.delete(client);
  }
}
