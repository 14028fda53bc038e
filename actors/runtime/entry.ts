/**
 * The worker entry of every pool: runs one actor for as long as it lives. Each kind is imported in its own threads only, so the native
 * engine is never loaded by a tokenizer. Its default export is the one that the pool needs; nothing else has one.
 */
import type { MessagePort } from 'node:worker_threads';
import type { ExecutorStart } from '../executor/actor.js';
import type { SchedulerStart } from '../scheduler/actor.js';
import type { TokenizerHostStart } from '../tokenizer/host.js';
import { Control } from './actor.js';
import { unreachable } from './invariant.js';

export type ActorStart =
  | { readonly kind: 'tokenizer'; readonly start: TokenizerHostStart }
  | { readonly kind: 'scheduler'; readonly start: SchedulerStart }
  | { readonly kind: 'executor'; readonly start: ExecutorStart };

export type ActorKind = ActorStart['kind'];

/** What a pool hands to a thread. `control` and every LinkEnd's port inside `actor` are transferred. */
export interface ActorTask {
  readonly actor: ActorStart;
  readonly index: number;
  readonly control: MessagePort;
}

/** Resolves when the actor was told to stop and has freed everything; rejects with what ended it otherwise. */
export default async function entry(task: ActorTask): Promise<void> {
  const control = new Control(task.control, { actor: `${task.actor.kind}-${task.index}` });
  try {
    await run(task.actor, control);
  } finally {
    control.close();
  }
}

async function run(actor: ActorStart, control: Control): Promise<void> {
  switch (actor.kind) {
    case 'tokenizer':
      return (await import('../tokenizer/host.js')).runTokenizer(actor.start, control);
    case 'scheduler':
      return (await import('../scheduler/actor.js')).runScheduler(actor.start, control);
    case 'executor':
      return (await import('../executor/actor.js')).runExecutor(actor.start, control);
    default:
      return unreachable(actor);
  }
}
