/**
 * Questions of the front that wait for an answer, each with a deadline; main thread. Never on the token path. Bounded by MAX_PENDING.
 */
import type { CallReply } from './messages/calls.js';
import { type Failure, InferdError } from './messages/errors.js';

const MAX_PENDING = 1024;

interface Pending {
  readonly to: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: InferdError) => void;
  readonly timer: NodeJS.Timeout;
}

export class Calls {
  readonly #pending = new Map<number, Pending>();
  #next = 1;

  /** Sends through `send` with a fresh call number; `to` names the actor, for `fail`. @throws InferdError, also at the deadline. */
  ask(to: string, deadlineMs: number, send: (call: number) => void): Promise<unknown> {
    if (this.#pending.size >= MAX_PENDING) return Promise.reject(new InferdError('overloaded', 'Too many calls are waiting'));
    const call = this.#next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#pending.delete(call);
        reject(new InferdError('engine_failure', `The ${to} did not answer within ${deadlineMs / 1000} s`, { retriable: true }));
      }, deadlineMs);
      this.#pending.set(call, { to, resolve, reject, timer });
      send(call);
    });
  }

  /** Late and unknown answers are ignored. */
  answer(reply: CallReply): void {
    const pending = this.#take(reply.call);
    if (pending === undefined) return;
    if (reply.ok) pending.resolve(reply.value);
    else pending.reject(asError(reply.failure));
  }

  /** Ends the calls to one actor, or all of them. */
  fail(to: string | null, failure: Failure): void {
    for (const [call, pending] of [...this.#pending]) {
      if (to === null || pending.to === to) this.#take(call)?.reject(asError(failure));
    }
  }

  #take(call: number): Pending | undefined {
    const pending = this.#pending.get(call);
    if (pending === undefined) return undefined;
    clearTimeout(pending.timer);
    this.#pending.delete(call);
    return pending;
  }
}

function asError({ kind, message, data }: Failure): InferdError {
  return new InferdError(kind, message, data);
}
