/**
 * What came to the doors: connections, answers by status, errors by code. Additions of numbers only; daemon/metrics reads them when it is
 * asked. Main thread.
 */
import type { Server } from 'node:http';

/** Answers to requests that look alike. */
export interface AnswerCount {
  /** The route's path as it is written in the table, or "none". */
  readonly handler: string;
  readonly method: string;
  /** First digit of the status, as in "2xx". */
  readonly status: string;
  count: number;
}

/** Others are counted together: a client names its method. */
const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'OPTIONS']);

export class Traffic {
  /** Open TCP and Unix connections, WebSockets included. */
  connections = 0;
  readonly #answers = new Map<string, AnswerCount>();
  readonly #errors = new Map<number, number>();

  get answers(): readonly AnswerCount[] {
    return [...this.#answers.values()];
  }

  /** Errors that calls were answered with, by code of the one table. */
  get errors(): ReadonlyMap<number, number> {
    return this.#errors;
  }

  /** Counts the connections of `server` from now on. */
  watch(server: Server): void {
    server.on('connection', (socket) => {
      this.connections++;
      socket.once('close', () => this.connections--);
    });
  }

  answered(handler: string, method: string, status: number): void {
    const known = METHODS.has(method) ? method : 'other';
    const family = `${Math.floor(status / 100)}xx`;
    const key = `${known} ${family} ${handler}`;
    const counted = this.#answers.get(key);
    if (counted === undefined) this.#answers.set(key, { handler, method: known, status: family, count: 1 });
    else counted.count++;
  }

  failed(code: number): void {
    this.#errors.set(code, (this.#errors.get(code) ?? 0) + 1);
  }
}
