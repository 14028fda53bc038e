/**
 * Renders chat templates that take long in a thread of its own, so that the tokenizer goes on with the answers of others: a template is
 * code in all but name, and may loop for as long as it is let (TemplateLimits). Used by encode/encode.ts, in the tokenizer thread; the
 * other side is slow-render-thread.ts. It saves no time of the prompt itself, but up to a second of everybody else's (TEMPLATE_MS of
 * daemon/life/topology.ts); to be dropped when no template may run for longer than an answer can wait.
 */
import { type Failure, InferdError } from '../../messages/errors.js';
import { SideThread } from '../work/side-thread.js';
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

const died = 'The chat template cannot be applied to these messages';

export class SlowRender {
  readonly #thread: SideThread<SlowRenderJob, SlowRendered>;

  constructor(limits: TemplateLimits) {
    this.#thread = new SideThread(new URL('./slow-render-thread.js', import.meta.url), limits);
  }

  /** A template is being rendered. */
  get busy(): boolean {
    return this.#thread.busy;
  }

  /** @throws InferdError as ChatTemplate.render does, or cancelled when the asker leaves before its turn. */
  async render(job: SlowRenderJob, asker: Asker): Promise<string> {
    const rendered = await this.#thread.run(job, asker);
    if (rendered === null) throw new InferdError('invalid_params', died);
    if ('text' in rendered) return rendered.text;
    throw new InferdError(rendered.failure.kind, rendered.failure.message);
  }

  /** Ends the thread: the template at hand fails. */
  close(): void {
    this.#thread.close();
  }
}
