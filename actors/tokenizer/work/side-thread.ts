/**
 * A thread beside a tokenizer's, for work of a client's making that may take long: one job at a time, clients take turns, and whoever
 * leaves before is forgotten at once. Used by template/slow-render.ts and constrain/grammar-texts.ts.
 *
 * The thread starts with the first job and then stays; when it dies (its heap is bounded), the job at hand has failed and the next one gets
 * a new thread.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { Places } from './places.js';
import type { Asker } from './waiting-line.js';

const HEAP_MB = 512;
/** The thread stops a job by itself; this is for one that even its own limits cannot stop. */
const HANG_LIMIT_MS = 60_000;

export class SideThread<Job, Done> {
  readonly #script: URL;
  readonly #data: unknown;
  readonly #place = new Places(1);
  #thread: Worker | null = null;

  /**
   * @param script of the thread: answers each message, a Job, with one message, a Done
   * @param data its workerData
   */
  constructor(script: URL, data: unknown) {
    this.#script = script;
    this.#data = data;
  }

  /** A job is being done. */
  get busy(): boolean {
    return this.#place.busy;
  }

  /** Null when the thread died of it. @throws InferdError cancelled when the asker leaves before its turn. */
  run(job: Job, asker: Asker): Promise<Done | null> {
    return this.#place.run(asker, () => this.#ask(job));
  }

  /** Ends the thread: the job at hand fails. */
  close(): void {
    void this.#thread?.terminate();
  }

  async #ask(job: Job): Promise<Done | null> {
    this.#thread ??= this.#start();
    const thread = this.#thread;
    const over = new AbortController();
    const { signal } = over;
    const hanging = setTimeout(() => thread.terminate(), HANG_LIMIT_MS);
    const ended = once(thread, 'exit', { signal }).then(
      () => null,
      () => null,
    );
    const answered = once(thread, 'message', { signal }).then(
      ([message]) => message as Done, // proof: the scripts send nothing else
      () => ended,
    );
    try {
      thread.postMessage(job);
      return await Promise.race([answered, ended]);
    } finally {
      clearTimeout(hanging);
      over.abort();
    }
  }

  #start(): Worker {
    const thread = new Worker(this.#script, { workerData: this.#data, resourceLimits: { maxOldGenerationSizeMb: HEAP_MB } });
    thread.unref();
    thread.on('error', () => {}); // its exit tells the same
    thread.once('exit', () => {
      if (this.#thread === thread) this.#thread = null;
    });
    return thread;
  }
}
