/**
 * How long the steps of a stop may take at most, milliseconds. In a file of its own because two must agree on it: daemon.ts, which stops in
 * this time, and the service units, whose manager kills what takes longer.
 */

export const STOP_LIMITS = {
  /** The engine ends its requests at the deadline of the drain itself; this is for one that hangs. */
  drainGraceMs: 2000,
  /** After the drain: answers leave and sockets close within this; twice, for WebSockets and then for HTTP. */
  closeMs: 3000,
  /** A profile of many millions of events is written within this. */
  profileMs: 60_000,
  engineStopMs: 10_000,
  /** The collector of spans may be away. */
  tracingMs: 6000,
} as const;

/** From the first signal to the end of the process, seconds, when everything takes as long as it may. */
export function longestStopS(drainTimeoutS: number): number {
  const { drainGraceMs, closeMs, profileMs, engineStopMs, tracingMs } = STOP_LIMITS;
  return Math.ceil(drainTimeoutS + (drainGraceMs + 2 * closeMs + profileMs + engineStopMs + tracingMs) / 1000);
}
