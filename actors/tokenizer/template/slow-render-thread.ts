/** The thread of slow-render.ts: renders what it is sent, one template after the other, each within the limits. */
import { parentPort, workerData } from 'node:worker_threads';
import { InferdError } from '../../messages/errors.js';
import { giveWay } from '../../runtime/cpu-time.js';
import { ChatTemplate, type TemplateLimits } from './chat-template.js';
import type { SlowRendered, SlowRenderJob } from './slow-render.js';

const limits = workerData as TemplateLimits; // proof: SlowRender starts this thread
/** By source: the few templates of one model. */
const templates = new Map<string, ChatTemplate>();

function templateOf({ source, literals }: SlowRenderJob): ChatTemplate {
  const known = templates.get(source);
  if (known !== undefined) return known;
  const template = new ChatTemplate(source, limits, (literal) => literals.includes(literal));
  templates.set(source, template);
  return template;
}

function rendered(job: SlowRenderJob): SlowRendered {
  try {
    return { text: templateOf(job).render(job.variables, job.searched) };
  } catch (error) {
    return { failure: error instanceof InferdError ? error.failure : { kind: 'internal' } };
  }
}

giveWay();
parentPort?.on('message', (job: SlowRenderJob) => parentPort?.postMessage(rendered(job)));
