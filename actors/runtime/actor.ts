/**
 * The actor's side of its control port, and the runner of parked actors. An actor is a function that gets its start data and a Control;
 * it says `ready` once, works until told to stop, frees what it holds and returns. Anything it throws ends it; the supervisor decides
 * what happens then (daemon/life/supervisor.ts). It keeps no state outside that call; its thread ends with it.
 */
import { type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { Capacity, Fault, FromActor, Progress, ToActor } from '../messages/control.js';
import type { Failure } from '../messages/errors.js';
import { type Doorbell, listen, park } from './doorbell.js';
import { type Log, threadLog } from './log.js';

/** Longest sleep of a parked loop: bounds how old a heartbeat can be. */
export const MAX_PARK_MS = 500;

export class Control {
  readonly log: Log;
  readonly #port: MessagePort;
  #stopping = false;
  #givenUp = false;

  /** `fields`: what each line of its log carries. */
  constructor(port: MessagePort, fields: Record<string, unknown>) {
    this.#port = port;
    this.log = threadLog((line) => this.#send(line), fields);
  }

  ready(capacity: Capacity | null): void {
    this.#send({ k: 'ready', capacity });
  }

  progress(progress: Progress): void {
    this.#send({ k: 'progress', progress });
  }

  fault(fault: Fault): void {
    this.#send({ k: 'fault', ...fault });
  }

  /** Answers a call. `transfer`: buffers of `value` that this thread gives away. */
  answer(call: number, value: unknown, transfer: readonly ArrayBuffer[] = []): void {
    this.#send({ k: 'reply', call, ok: true, value }, transfer);
  }

  /** Answers a call with why it cannot be done. */
  refuse(call: number, failure: Failure): void {
    this.#send({ k: 'reply', call, ok: false, failure });
  }

  /** Handles what has arrived, for loops and for those who cannot wait. That it is to stop is remembered; everything else goes to `handle`. */
  poll(handle?: (message: ToActor) => void): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return;
      const message = received.message as ToActor; // proof: only the supervisor holds the other end
      if (message.k === 'give_up') this.#givenUp = true;
      if (message.k === 'stop' || message.k === 'give_up') this.#stopping = true;
      else handle?.(message);
    }
  }

  /** True once `stop` or `give_up` was polled. */
  get stopping(): boolean {
    return this.#stopping;
  }

  /** True when it is to stop without waiting for what it began. */
  get givenUp(): boolean {
    return this.#givenUp;
  }

  /** For event loops: calls `handle` for each message until `close`. */
  listen(handle: (message: ToActor) => void): void {
    this.#port.on('message', handle);
  }

  close(): void {
    this.#port.close();
  }

  #send(message: FromActor, transfer: readonly ArrayBuffer[] = []): void {
    this.#port.postMessage(message, transfer);
  }
}

/**
 * The loop of a parked actor. `turn` does what can be done now and returns how long the loop may sleep: 0 = come again at once.
 * Any ring during the turn ends the sleep at once. Ends after the turn in which `control` saw a stop.
 *
 * `spinUs` is asked after a turn that a ring began: how long the loop looks at the bell before it sleeps, microseconds. A sleep that was
 * over without a ring is followed by the next sleep, so a loop to which nothing comes never looks.
 */
export function runParked(bell: Doorbell, control: Control, turn: () => number, spinUs: () => number = never): void {
  let rang = false;
  while (!control.stopping) {
    const heard = listen(bell);
    const sleepMs = turn();
    const sleeps = sleepMs > 0 && !control.stopping;
    rang = sleeps && park(bell, heard, Math.min(sleepMs, MAX_PARK_MS), rang ? spinUs() : 0);
  }
}

const never = (): number => 0;
