/**
 * One actor as the main thread sees it: its thread, its control port, and how it ended. Used by the units that the supervisor restarts.
 */
import { MessageChannel, type MessagePort, receiveMessageOnPort, type Transferable } from 'node:worker_threads';
import { Calls } from '../../actors/client-calls.js';
import type { Capacity, Fault, FromActor, Progress, ToActor } from '../../actors/messages/control.js';
import { InferdError } from '../../actors/messages/errors.js';
import { type Doorbell, ring } from '../../actors/runtime/doorbell.js';
import type { ActorKind, ActorStart } from '../../actors/runtime/entry.js';
import { unreachable } from '../../actors/runtime/invariant.js';
import { errorFields, type Log } from '../../actors/runtime/log.js';
import type { Pools, Thread } from './pools.js';

/** Why an actor is over. */
export type Ending = Fault;

/** An executor looks for messages between slices of its waits; one that has not by then hangs itself. */
const GIVE_UP_MS = 500;

export interface ChildOptions {
  readonly pools: Pools;
  readonly log: Log;
  readonly onProgress: (progress: Progress) => void;
  /** The actor does not keep the process alive. */
  readonly background?: boolean;
}

export interface ChildStart {
  readonly actor: ActorStart;
  readonly index: number;
  /** Ports inside `actor.start`. */
  readonly transfer: readonly Transferable[];
  /** The doorbell of a parked actor, rung after each control message. */
  readonly bell: Doorbell | null;
  /** In place of that of the options. */
  readonly onProgress?: (progress: Progress) => void;
}

export class Child {
  /** Resolves when the actor says so; never, when it ends before. */
  readonly ready: Promise<Capacity | null>;
  /** Resolves when the actor is over, asked or not. */
  readonly ended: Promise<Ending>;
  readonly name: string;
  readonly #kind: ActorKind;
  readonly #log: Log;
  readonly #onProgress: (progress: Progress) => void;
  readonly #port: MessagePort;
  readonly #bell: Doorbell | null;
  readonly #thread: Thread;
  readonly #calls = new Calls();
  #fault: Ending | null = null;
  #over = false;
  #onReady: (capacity: Capacity | null) => void = () => {};

  constructor(options: ChildOptions, start: ChildStart) {
    const { port1, port2 } = new MessageChannel();
    this.name = `${start.actor.kind} ${start.index}`;
    this.#kind = start.actor.kind;
    this.#onProgress = start.onProgress ?? options.onProgress;
    this.#log = options.log;
    this.#port = port1;
    this.#bell = start.bell;
    port1.on('message', (message: FromActor) => this.#on(message));
    if (options.background) port1.unref();
    const task = { actor: start.actor, index: start.index, control: port2 };
    this.#thread = options.pools.run(task, [port2, ...start.transfer]);
    this.ended = this.#thread.ended.then(({ error }) => this.#ending(error));
    this.ready = new Promise<Capacity | null>((resolve) => {
      this.#onReady = resolve;
    });
  }

  send(message: ToActor, transfer: readonly Transferable[] = []): void {
    this.#port.postMessage(message, transfer);
    if (this.#bell !== null) ring(this.#bell);
  }

  /** Sends a call and waits for its answer. @throws InferdError with the actor's failure, at the deadline, and when the actor is over */
  ask(make: (call: number) => ToActor, deadlineMs: number): Promise<unknown> {
    if (this.#over) return Promise.reject(new InferdError('engine_failure', `The ${this.name} is over`));
    return this.#calls.ask(this.name, deadlineMs, (call) => this.send(make(call)));
  }

  /**
   * Asks it to stop, and terminates it when it has not within `limitMs`. Resolves when it is over: false when its thread is still there, or
   * what it worked with still in use.
   */
  async stop(limitMs: number): Promise<boolean> {
    this.send({ k: 'stop' });
    const timer = setTimeout(() => {
      this.#log.warn({ actor: this.name, limitMs }, 'an actor did not stop in time and is terminated');
      this.kill();
    }, limitMs);
    const { leftBehind = false } = await this.ended;
    clearTimeout(timer);
    return (await this.#thread.ended).gone && !leftBehind;
  }

  /** Ends it without waiting for what it does. Only an executor has something to say about what it leaves behind. */
  giveUp(): void {
    if (this.#kind !== 'executor') {
      this.kill();
      return;
    }
    this.send({ k: 'give_up' });
    const timer = setTimeout(() => this.kill(), GIVE_UP_MS);
    void this.ended.then(() => clearTimeout(timer));
  }

  kill(): void {
    this.#thread.kill();
  }

  #on(message: FromActor): void {
    switch (message.k) {
      case 'ready':
        this.#onReady(message.capacity);
        return;
      case 'progress':
        this.#onProgress(message.progress);
        return;
      case 'fault':
        this.#onFault(message);
        return;
      case 'reply':
        this.#calls.answer(message);
        return;
      case 'log':
        this.#log[message.level](message.fields, message.message);
        return;
      default:
        unreachable(message);
    }
  }

  /** The first says why it ends, a later one what is left of it. */
  #onFault(fault: Fault): void {
    const { leftBehind = false } = fault;
    this.#fault = { ...(this.#fault ?? fault), leftBehind };
  }

  #ending(error: Error | null): Ending {
    // The thread's end and its last words come on two ports; the words must not be lost.
    for (let last = receiveMessageOnPort(this.#port); last !== undefined; last = receiveMessageOnPort(this.#port)) {
      this.#on(last.message as FromActor); // proof: the actor's Control holds the other end
    }
    this.#port.close();
    this.#over = true;
    this.#calls.fail(null, { kind: 'engine_failure', message: `The ${this.name} ended before it answered` });
    if (this.#fault !== null) return this.#fault;
    if (error !== null) this.#log.error({ actor: this.name, ...errorFields(error) }, 'an actor threw or was terminated');
    const message = error === null ? `The ${this.name} was stopped` : `The ${this.name} ended: ${error.message}`;
    return { failure: { kind: 'engine_failure', message, data: { retriable: true } }, fatal: false };
  }
}
