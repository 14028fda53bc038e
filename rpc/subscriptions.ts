/**
 * Long-lived feeds of one connection: each runs a source at an interval and sends what it gives. A tick is skipped while the one before
 * is not done or the socket is full: a feed of samples loses nothing by that, and nothing piles up.
 */
import { InferdError } from '../actors/messages/errors.js';
import type { Outbox } from './outbox.js';

const maxSubscriptions = 8;

export class Subscriptions {
  readonly #out: Outbox;
  readonly #timers = new Map<string, NodeJS.Timeout>();
  #count = 0;

  constructor(out: Outbox) {
    this.#out = out;
  }

  /** Returns the id. The first event comes after one interval, so never before the response that carries the id. */
  add(method: string, intervalMs: number, source: () => Promise<Readonly<Record<string, unknown>>>): string {
    if (this.#timers.size >= maxSubscriptions) {
      throw new InferdError('rate_limited', `A connection may have at most ${maxSubscriptions} subscriptions`);
    }
    const subscription = `sub-${++this.#count}`;
    let busy = false;
    const tick = async (): Promise<void> => {
      if (busy || this.#out.full) return;
      busy = true;
      try {
        const sample = await source();
        if (this.#timers.has(subscription)) this.#out.notify(method, { subscription, ...sample });
      } catch {
        // The engine is restarting or gone: the feed goes on when it is back, and calls report the failure.
      } finally {
        busy = false;
      }
    };
    this.#timers.set(
      subscription,
      setInterval(() => void tick(), intervalMs),
    );
    return subscription;
  }

  /** False when there is no such subscription. */
  remove(subscription: string): boolean {
    clearInterval(this.#timers.get(subscription));
    return this.#timers.delete(subscription);
  }

  close(): void {
    for (const timer of this.#timers.values()) clearInterval(timer);
    this.#timers.clear();
  }
}
