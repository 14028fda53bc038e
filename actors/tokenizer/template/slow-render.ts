/**
 * Renders chat templates that take long in a thread of its own, so that the tokenizer goes on with the answers of others: a template is
 * code in all but name, and may loop for as long as it is let (TemplateLimits). Used by encode/encode.ts, in the tokenizer thread; the
 * other side is slow-render-thread.ts. It saves no time of the prompt itself, but up to a second of everybody else's (TEMPLATE_MS of
 * daemon/life/topology.ts); to be dropped when no template may run for longer than an answer can wait.
 *
 * One template at a time; clients take turns, and whoever leaves before is forgotten at once. The thread starts with the first one and
 * then stays; when it dies (its heap is bounded), the template at hand has failed and the next one gets a new thread.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { type Failure, InferdError } from '../../messages/errors.js';
import { Places } from '../work/places.js';
import type { Asker } from '../work/waiting-line.js';
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
  readonly #place = new Places(1);

  constructor(limits: TemplateLimits) {
    this.#limits = limits;
  }

  /** A template is being rendered. */
  get busy(): boolean {
    return this.#place.busy;
  }

  /** @throws InferdError as ChatTemplate.render does, or cancelled when the asker leaves before its turn. */
  render(job: SlowRenderJob, asker: Asker): Promise<string> {
    return this.#place.run(asker, async () => {
      const rendered = await this.#ask(job);
      if ('text' in rendered) return rendered.text;
      throw new InferdError(rendered.failure.kind, rendered.failure.message);
    });
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
