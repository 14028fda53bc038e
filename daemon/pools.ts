/**
 * Threads for actors: one piscina pool per kind, with exactly as many threads as it has actors, none queued. The only user of piscina.
 *
 * An actor is one long-lived task, and its death is the settling of that task: told to stop, an uncaught error, an exhausted heap and
 * `kill` (which terminates the thread, also in a loop of JavaScript) all look the same. Only a call into native code cannot be
 * interrupted; `ended` waits until the thread is really gone, so that a successor does not share the device with it.
 */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Transferable, Worker } from 'node:worker_threads';
import { Piscina } from 'piscina';
import type { ActorKind, ActorTask } from '../actors/runtime/entry.js';
import { errorFields, type Log } from '../actors/runtime/log.js';

/** A running actor. */
export interface Thread {
  /** Resolves, never rejects, when the actor is over and its thread idle or gone: null after a normal return. */
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

export function createPools(counts: Readonly<Record<ActorKind, number>>, log: Log): Pools {
  const pools = {
    tokenizer: createPool('tokenizer', counts.tokenizer, log),
    scheduler: createPool('scheduler', counts.scheduler, log),
    executor: createPool('executor', counts.executor, log),
  };
  return {
    run: (task, transfer) => runIn(pools[task.actor.kind], task, transfer),
    async close() {
      await Promise.all(Object.values(pools).map((pool) => pool.destroy()));
    },
  };
}

function createPool(kind: ActorKind, threads: number, log: Log): Piscina {
  const pool = new Piscina({
    filename: entryFile,
    minThreads: threads,
    maxThreads: threads,
    maxQueue: 0,
    atomics: 'disabled',
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MB[kind] },
    recordTiming: false,
  });
  // A thread that fails without a task, for example while it starts. Its next task fails too and is seen by the supervisor.
  pool.on('error', (error: unknown) => log.error({ kind, ...errorFields(error) }, 'a thread failed'));
  return pool;
}

function runIn(pool: Piscina, task: ActorTask, transfer: readonly Transferable[]): Thread {
  const abort = new AbortController();
  let gone: Promise<unknown> = Promise.resolve();
  const run: Promise<Error | null> = pool.run(task, { transferList: [...transfer], signal: abort.signal }).then(
    () => null,
    (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
  );
  return {
    ended: run.then(async (error) => {
      await gone;
      return error;
    }),
    kill() {
      const before = pool.threads;
      abort.abort();
      gone = Promise.all(before.filter((thread) => !pool.threads.includes(thread)).map(exited));
    },
  };
}

/** Bounded wait for a terminated thread. */
async function exited(thread: Worker): Promise<void> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), EXIT_LIMIT_MS);
  await once(thread, 'exit', { signal: limit.signal }).catch(() => undefined);
  clearTimeout(timer);
}
