/** What the actors handed over after a profile, joined for one rank. Plain data; main thread. */
import { type Recording, SPAN, SPAN_ARGS } from '../../actors/messages/profile.js';
import type { DeviceTrace } from '../../native/index.js';

export interface RankRecording {
  readonly rank: number;
  /** Of the scheduler, which serves all ranks. */
  readonly scheduler: Recording;
  readonly executor: Recording;
  /** On the clock of the spans. Null when the engine cannot record. */
  readonly device: DeviceTrace | null;
}

/** What the scheduler planned for a step. */
export interface StepFacts {
  readonly rows: number;
  readonly tokens: number;
  /** Nothing could run before it. */
  readonly afterIdle: boolean;
}

/** By step number. */
export function stepFacts(scheduler: Recording): ReadonlyMap<number, StepFacts> {
  const facts = new Map<number, StepFacts>();
  for (let i = 0; i < scheduler.size; i++) {
    if (scheduler.kind[i] !== SPAN.plan) continue;
    const [rows = 0, tokens = 0, afterIdle = 0] = scheduler.args.subarray(i * SPAN_ARGS, (i + 1) * SPAN_ARGS);
    facts.set(scheduler.step[i] ?? 0, { rows, tokens, afterIdle: afterIdle === 1 });
  }
  return facts;
}

/** The same events on another clock. Changes `device`. */
export function shifted(device: DeviceTrace, byUs: number): DeviceTrace {
  for (let i = 0; i < device.startUs.length; i++) device.startUs[i] = (device.startUs[i] ?? 0) + byUs;
  return device;
}
