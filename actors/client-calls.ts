/**
 * Questions of the front that wait for an answer, each with a deadline; main thread. Never on the token path. Bounded by MAX_PENDING.
 */
import type { CallReply } from './messages/calls.js';
import { type Failure, InferdError } from './messages/errors.js';
import type { Cancellation } from './runtime/cancellation.js';

const MAX_PENDING = 1024;

/** How a question may end before its answer. */
export interface Leaving {
  /** The question ends as cancelled as soon as this fires. */
  readonly cancellation: Cancellation | undefined;
  /** Told when nobody waits for the answer any more: it was cancelled, or the deadline passed. */
  readonly onLeft: () => void;
}

interface Pending {
  readonly to: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: InferdError) => void;
  /** It waits no more for its deadline and its cancellation. */
  readonly settle: () => void;
}

export class Calls {
  readonly #pending = new Map<number, Pending>();
  readonly #nextNumber: () => number;

  /** `nextNumber`: makes call numbers, where they must differ from other numbers too. */
  constructor(nextNumber: () => number = counter()) {
    this.#nextNumber = nextNumber;
  }

  /** Sends through `send` with a fresh call number; `to` names the actor, for `fail`. @throws InferdError, also at the deadline. */
  ask(to: string, deadlineMs: number, send: (call: number) => void, leaving?: (call: number) => Leaving): Promise<unknown> {
    if (this.#pending.size >= MAX_PENDING) return Promise.reject(new InferdError('overloaded', 'Too many calls are waiting'));
    const call = this.#nextNumber();
    const { cancellation, onLeft } = leaving?.(call) ?? {};
    if (cancellation?.cancelled) return Promise.reject(new InferdError('cancelled'));
    return new Promise((resolve, reject) => {
      const leave = (error: InferdError): void => {
        if (this.#take(call) === undefined) return;
        reject(error);
        onLeft?.();
      };
      const late = (): void => {
        leave(new InferdError('engine_failure', `The ${to} did not answer within ${deadlineMs / 1000} s`, { retriable: true }));
      };
      const cancel = (): void => leave(new InferdError('cancelled'));
      const timer = setTimeout(late, deadlineMs);
      cancellation?.listen(cancel);
      const settle = (): void => {
        clearTimeout(timer);
        cancellation?.unlisten(cancel);
      };
      this.#pending.set(call, { to, resolve, reject, settle });
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
    pending.settle();
    this.#pending.delete(call);
    return pending;
  }
}

function counter(): () => number {
  let last = 0;
  return () => ++last;
}

/** A failure of an actor as the caller's exception. */
export function asError({ kind, message, data }: Failure): InferdError {
  return new InferdError(kind, message, data);
}
