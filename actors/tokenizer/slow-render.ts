/**
 * Renders chat templates that take long in a thread of its own, so that the tokenizer goes on with the answers of others: a template is
 * code in all but name, and may loop for as long as it is let (TemplateLimits). Used by encode.ts, in the tokenizer thread; the other
 * side is slow-render-thread.ts.
 *
 * One template at a time, first come, first served: whoever sends many of them waits for them. The thread starts with the first one and
 * then stays; when it dies (its heap is bounded), the template at hand has failed and the next one gets a new thread.
 * Bounded by the number of requests that the front lets in.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { type Failure, InferdError } from '../messages/errors.js';
import type { TemplateLimits, Variables } from './chat-template.js';

/** To the thread: one template to render. */
export interface SlowRenderJob {
  readonly source: string;
  /** `searched` of the template, and what stands for it in `variables`. */
  readonly literals: readonly string[];
  readonly searched: readonly string[];
  readonly variables: Variables;
}

/** From the thread. */
export type SlowRendered = { readonly text: string } | { readonly failure: Failure };

const failed: SlowRendered = { failure: { kind: 'invalid_params', message: 'The chat template cannot be applied to these messages' } };

const HEAP_MB = 512;
/** The thread stops a template by itself; this is for one that even its interrupt cannot stop. */
const HANG_LIMIT_MS = 60_000;

export class SlowRender {
  readonly #limits: TemplateLimits;
  #thread: Worker | null = null;
  #pending = 0;
  /** Settles when all templates so far are rendered. */
  #done: Promise<void> = Promise.resolve();

  constructor(limits: TemplateLimits) {
    this.#limits = limits;
  }

  /** A template is being rendered. */
  get busy(): boolean {
    return this.#pending > 0;
  }

  /**
   * @param wanted asked when its turn has come: nobody may wait for it any more.
   * @throws InferdError as ChatTemplate.render does
   */
  async render(job: SlowRenderJob, wanted: () => boolean): Promise<string> {
    const before = this.#done;
    let done = (): void => {};
    this.#done = new Promise((resolve) => {
      done = resolve;
    });
    this.#pending++;
    try {
      await before;
      if (!wanted()) throw new InferdError('cancelled');
      const rendered = await this.#ask(job);
      if ('text' in rendered) return rendered.text;
      throw new InferdError(rendered.failure.kind, rendered.failure.message);
    } finally {
      this.#pending--;
      done();
    }
  }

  /** Ends the thread: the template at hand fails. */
  close(): void {
    void this.#thread?.terminate();
  }

  async #ask(job: SlowRenderJob): Promise<SlowRendered> {
    this.#thread ??= this.#start();
    const thread = this.#thread;
    const over = new AbortController();
    const { signal } = over;
    const hanging = setTimeout(() => thread.terminate(), HANG_LIMIT_MS);
    const ended = once(thread, 'exit', { signal }).then(
      () => failed,
      () => failed,
    );
    const answered = once(thread, 'message', { signal }).then(
      ([message]) => message as SlowRendered, // proof: slow-render-thread.ts sends nothing else
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
    const thread = new Worker(new URL('./slow-render-thread.js', import.meta.url), {
      workerData: this.#limits,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    thread.unref();
    thread.on('error', () => {}); // its exit tells the same
    thread.once('exit', () => {
      if (this.#thread === thread) this.#thread = null;
    });
    return thread;
  }
}
