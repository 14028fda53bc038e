/**
 * Threads for actors: one piscina pool of one thread for each life of an actor. The only user of piscina.
 *
 * An actor is one long-lived task, and its death is the settling of that task: told to stop, an uncaught error, an exhausted heap and
 * `kill` (which terminates the thread, also in a loop of JavaScript) all look the same. The thread goes with its actor, as an Erlang
 * process does, and takes its heap along: a thread that served the next life too would keep the rings and buffers of the last one until
 * its own garbage collector happened to run, which shared memory does nothing to hasten.
 *
 * `ended` waits until the thread is really gone, so that a successor does not share the device with it. A call into native code cannot
 * be interrupted; the thread exits when that returns. One that does not return in time is told as not gone, and bound-exit.ts keeps the
 * process from waiting for it at its own end.
 *
 * A daemon lives as long as its threads. An engine in somebody's program must not keep that alive: `background` threads go when the
 * program has nothing else to do.
 */
import { fileURLToPath } from 'node:url';
import type { Transferable } from 'node:worker_threads';
import { Piscina } from 'piscina';
import type { ActorKind, ActorTask } from '../../actors/runtime/entry.js';
import { errorFields, type Log } from '../../actors/runtime/log.js';
import { boundExit } from './bound-exit.js';

/** How a thread ended. */
export interface ThreadEnd {
  /** Null after a normal return of the actor. */
  readonly error: Error | null;
  /** False when it is still there: in a native call that has not returned. */
  readonly gone: boolean;
}

/** A running actor. */
export interface Thread {
  /** Resolves, never rejects, when the actor is over and its thread gone, or given up. */
  readonly ended: Promise<ThreadEnd>;
  /** Terminates the thread. */
  kill(): void;
}

export interface Pools {
  run(task: ActorTask, transfer: readonly Transferable[]): Thread;
  /** Terminates whatever still runs and waits for the threads to exit, or to be given up. */
  close(): Promise<void>;
}

/** Heap of one thread, MiB. A tokenizer holds vocabularies and merges, a scheduler the state of all requests. */
const HEAP_MB: Readonly<Record<ActorKind, number>> = { tokenizer: 2048, scheduler: 2048, executor: 512 };
/** A thread in a native call exits when the call returns; longer than this is not waited for. */
const EXIT_LIMIT_MS = 10_000;

const entryFile = fileURLToPath(new URL('../../actors/runtime/entry.js', import.meta.url));

/** `background`: the threads do not keep the process alive. */
export function createPools(log: Log, background = false): Pools {
  const live = new Set<PooledThread>();
  boundExit();
  return {
    run(task, transfer) {
      const thread = new PooledThread(task, transfer, log);
      if (background) thread.letExit();
      live.add(thread);
      void thread.ended.then(() => live.delete(thread));
      return thread;
    },
    async close() {
      for (const thread of live) thread.kill();
      await Promise.all([...live].map((thread) => thread.ended));
    },
  };
}

class PooledThread implements Thread {
  readonly ended: Promise<ThreadEnd>;
  readonly #pool: Piscina;
  #exited: Promise<void> | null = null;

  constructor(task: ActorTask, transfer: readonly Transferable[], log: Log) {
    const { kind } = task.actor;
    this.#pool = new Piscina({
      filename: entryFile,
      minThreads: 1,
      maxThreads: 1,
      maxQueue: 0,
      atomics: 'disabled',
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB[kind] },
      recordTiming: false,
    });
    // What the thread throws after its task has settled, for example.
    this.#pool.on('error', (error: unknown) => log.error({ kind, ...errorFields(error) }, 'a thread failed'));
    const settled: Promise<Error | null> = this.#pool.run(task, { transferList: [...transfer] }).then(
      () => null,
      (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
    );
    this.ended = settled.then(async (error) => {
      const gone = await withinLimit(this.#exit());
      if (!gone) log.error({ kind, limitMs: EXIT_LIMIT_MS }, 'a thread does not exit and is left behind');
      return { error, gone };
    });
  }

  kill(): void {
    void this.#exit();
  }

  /** The process may end while it runs. To be called at once. */
  letExit(): void {
    this.#pool.on('workerCreate', (worker: object) => setImmediate(unrefPort, worker));
  }

  /** Terminates the thread, if it still runs, and resolves when it has exited. */
  #exit(): Promise<void> {
    this.#exited ??= this.#pool.destroy();
    return this.#exited;
  }
}

/**
 * piscina keeps the process alive while a task runs, by the port of its worker, and has no switch for it. That port is on its own record
 * of the worker, which what it tells of one carries under a symbol. Called when the task is posted. Where a piscina has no such record,
 * the process lives until the engine is closed.
 */
function unrefPort(worker: object): void {
  for (const symbol of Object.getOwnPropertySymbols(worker)) {
    const record = (worker as Readonly<Record<symbol, { readonly port?: { unref?(): void } } | null | undefined>>)[symbol];
    record?.port?.unref?.();
  }
}

async function withinLimit(exited: Promise<void>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, EXIT_LIMIT_MS, false);
  });
  const gone = await Promise.race([exited.then(() => true), limit]);
  clearTimeout(timer);
  return gone;
}
