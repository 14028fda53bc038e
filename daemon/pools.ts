/**
 * Threads for actors: one piscina pool of one thread for each life of an actor. The only user of piscina.
 *
 * An actor is one long-lived task, and its death is the settling of that task: told to stop, an uncaught error, an exhausted heap and
 * `kill` (which terminates the thread, also in a loop of JavaScript) all look the same. The thread goes with its actor, as an Erlang
 * process does, and takes its heap along: a thread that served the next life too would keep the rings and buffers of the last one until
 * its own garbage collector happened to run, which shared memory does nothing to hasten.
 *
 * `ended` waits until the thread is really gone, so that a successor does not share the device with it. A call into native code cannot
 * be interrupted; the thread exits when that returns.
 */
import { fileURLToPath } from 'node:url';
import type { Transferable } from 'node:worker_threads';
import { Piscina } from 'piscina';
import type { ActorKind, ActorTask } from '../actors/runtime/entry.js';
import { errorFields, type Log } from '../actors/runtime/log.js';

/** A running actor. */
export interface Thread {
  /** Resolves, never rejects, when the actor is over and its thread gone: null after a normal return. */
  readonly ended: Promise<Error | null>;
  /** Terminates the thread. */
  kill(): void;
}

export interface Pools {
  run(task: ActorTask, transfer: readonly Transferable[]): Thread;
  /** Terminates whatever still runs and waits for the threads to exit. */
  close(): Promise<void>;
}

/** Heap of one thread, MiB. A tokenizer holds vocabularies and merges, a scheduler the state of all requests. */
const HEAP_MB: Readonly<Record<ActorKind, number>> = { tokenizer: 2048, scheduler: 2048, executor: 512 };
/** A thread in a native call exits when the call returns; longer than this is not waited for. */
const EXIT_LIMIT_MS = 10_000;

const entryFile = fileURLToPath(new URL('../actors/runtime/entry.js', import.meta.url));

export function createPools(log: Log): Pools {
  const live = new Set<PooledThread>();
  return {
    run(task, transfer) {
      const thread = new PooledThread(task, transfer, log);
      live.add(thread);
      void thread.ended.then(() => live.delete(thread));
      return thread;
    },
    async close() {
      await Promise.all([...live].map((thread) => thread.exit()));
    },
  };
}

class PooledThread implements Thread {
  readonly ended: Promise<Error | null>;
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
      await withinLimit(this.exit());
      return error;
    });
  }

  kill(): void {
    void this.exit();
  }

  /** Terminates the thread, if it still runs, and resolves when it has exited. */
  exit(): Promise<void> {
    this.#exited ??= this.#pool.destroy();
    return this.#exited;
  }
}

async function withinLimit(exited: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, EXIT_LIMIT_MS);
  });
  await Promise.race([exited, limit]);
  clearTimeout(timer);
}
