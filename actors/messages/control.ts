/**
 * Messages between the supervisor (main thread) and an actor, over the actor's control port. They are few, carry ports and shared
 * memory, and therefore go by structured clone; everything else between threads is msgpack.
 */
import type { MessagePort } from 'node:worker_threads';
import type { CallReply } from './calls.js';
import type { Failure } from './errors.js';

/** One end of a two-way link between two actors (runtime/mailbox.ts, which knows the layout of the lanes). Posting it transfers `port`. */
export interface LinkEnd {
  /** Carries what the lanes have no room for. */
  readonly port: MessagePort;
  /** Batches from this end. */
  readonly outgoing: Int32Array<SharedArrayBuffer>;
  /** Batches from the other end. */
  readonly incoming: Int32Array<SharedArrayBuffer>;
  /** Rung by the other end after each batch; of a parked thread, the one that it sleeps on. */
  readonly bell: Int32Array<SharedArrayBuffer>;
  /** Rung after each batch. */
  readonly peerBell: Int32Array<SharedArrayBuffer>;
}

/** Progress of an actor's start-up. */
export interface Progress {
  readonly phase: 'tokenizer' | 'weights' | 'kv' | 'warmup';
  readonly done: number;
  readonly total: number;
}

/** What a tokenizer needs to choose an engine group and to count what it sends there: shared words, see routing/. */
export interface GroupPlace {
  readonly index: number;
  /** `null` where there is one group. */
  readonly board: Int32Array<SharedArrayBuffer> | null;
  readonly taken: Int32Array<SharedArrayBuffer>;
}

/** supervisor -> actor. */
export type ToActor =
  /** Finish the turn, free everything, return. */
  | { readonly k: 'stop' }
  /** executor: stop now; do not wait for steps that run. */
  | { readonly k: 'give_up' }
  /** scheduler: a tokenizer with this owner number is there now. */
  | { readonly k: 'attach'; readonly owner: number; readonly link: LinkEnd; readonly taken: Int32Array<SharedArrayBuffer> }
  /** scheduler: that tokenizer died; forget its link and its requests. */
  | { readonly k: 'detach'; readonly owner: number }
  /** tokenizer: the scheduler of an engine group is there now, in place of the one before. */
  | { readonly k: 'connect'; readonly link: LinkEnd; readonly group: GroupPlace }
  /** tokenizer: the schedulers of these groups are gone, all at once; others will come. */
  | { readonly k: 'disconnect'; readonly groups: readonly number[] }
  | ProfileCall
  | AdapterCall;

/** Calls to the executors, answered by a reply on the control port. */
export type AdapterCall =
  /** Read it into host memory, under a number that plans place it by. Answered with what native/index.ts calls AdapterInfo. */
  | { readonly k: 'load_adapter'; readonly call: number; readonly adapter: number; readonly folder: string }
  /** No plan will place it any more. */
  | { readonly k: 'unload_adapter'; readonly call: number; readonly adapter: number };

/** Calls to the scheduler and the executors, answered by a reply on the control port. */
export type ProfileCall =
  /** Record what you do from now on. */
  | { readonly k: 'record'; readonly call: number; readonly maxEvents: number }
  /** Stop recording and answer with what was recorded. */
  | { readonly k: 'handover'; readonly call: number };

/** What an executor found out while starting; goes into the scheduler's options and into ServedModel. */
export interface Capacity {
  readonly numBlocks: number;
  readonly blockBytes: number;
  /** Blocks of the host for swapping. */
  readonly numSwapBlocks: number;
  readonly architecture: string;
  readonly dtype: string;
  readonly kvDtype: string;
  readonly vocabSize: number;
  readonly weightBytes: number;
  readonly parameters: number;
  /** For example "cpu avx512 x2". */
  readonly backend: string;
}

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** One log line on its way to the main thread. */
export interface LogLine {
  readonly k: 'log';
  readonly level: LogLevel;
  readonly fields: Record<string, unknown>;
  readonly message: string;
}

/** Why an actor ends. */
export interface Fault {
  readonly failure: Failure;
  /** The process cannot go on (sticky device error). */
  readonly fatal: boolean;
  /** What it worked with is still in use, though its thread is gone: nothing may come in its place. */
  readonly leftBehind?: boolean;
  /** Of a rank that only ends because another one has: that one's end says why. */
  readonly because?: 'another rank';
}

/** actor -> supervisor. `ready` comes once; `fault` is the last message of an actor that ends because of an engine or start-up error. */
export type FromActor =
  | { readonly k: 'ready'; readonly capacity: Capacity | null }
  | { readonly k: 'progress'; readonly progress: Progress }
  | ({ readonly k: 'fault' } & Fault)
  | CallReply
  | LogLine;
