/**
 * What an actor records of itself while a profile runs: spans and counters as columns of numbers. Nothing of a prompt fits in here.
 * Written by runtime/spans.ts in the actor's thread, read by daemon/profile/ on the main thread, which gives the numbers their names.
 */

/** Kinds of events. Spans of one thread follow each other, they never nest. */
export const SPAN = {
  /** scheduler */
  drain: 0,
  apply: 1,
  plan: 2,
  writePlan: 3,
  requests: 4,
  kv: 5,
  /** executor */
  readPlan: 6,
  submit: 7,
  sleep: 8,
  wait: 9,
  writeResult: 10,
} as const;
export type SpanKind = (typeof SPAN)[keyof typeof SPAN];

export interface SpanFacts {
  readonly name: string;
  /** Names of the numbers that an event of this kind carries; at most SPAN_ARGS. */
  readonly args: readonly string[];
  /** A value at a moment instead of a span. */
  readonly counter?: true;
}

/** By kind. */
export const spanFacts: readonly SpanFacts[] = [
  { name: 'drain mailbox', args: ['messages'] },
  { name: 'apply results', args: ['samples'] },
  /** `after_idle`: before this plan there was nothing to run, so that the device waited for requests and not for us. */
  { name: 'plan', args: ['rows', 'tokens', 'after_idle'] },
  { name: 'write ring', args: ['bytes'] },
  { name: 'requests', args: ['running', 'waiting'], counter: true },
  { name: 'kv blocks', args: ['used'], counter: true },
  { name: 'read plan', args: ['bytes'] },
  { name: 'submit', args: ['rows', 'tokens'] },
  { name: 'sleep', args: [] },
  { name: 'wait', args: ['done'] },
  { name: 'write result', args: ['bytes'] },
];

export const SPAN_ARGS = 3;
/** `step` of an event that belongs to no step. */
export const NO_STEP = -1;

/** Columns of `size` events in order of start; the arrays may be longer. */
export interface Recording {
  readonly size: number;
  /** Events that found no room. */
  readonly dropped: number;
  readonly kind: Uint8Array<ArrayBuffer>;
  /** Of the clock that all threads share: monotonicClock() of runtime/clock.ts. */
  readonly startUs: Float64Array<ArrayBuffer>;
  readonly durationUs: Float64Array<ArrayBuffer>;
  readonly step: Int32Array<ArrayBuffer>;
  /** SPAN_ARGS numbers an event. */
  readonly args: Int32Array<ArrayBuffer>;
}
