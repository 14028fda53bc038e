/** The clocks of all threads: each has one time origin for the process, so times taken in one thread can be compared in another. */

/** Milliseconds since 1970 with a fraction; monotonic within the process. */
export function nowMs(): number {
  return performance.timeOrigin + performance.now();
}

const READINGS = 16;

/**
 * Reads another clock, in microseconds, between two readings of ours and returns what to add to it: the best of some tries, since a
 * thread may be interrupted in between.
 */
export function offsetUs(ours: () => number, theirs: () => number): number {
  let offset = 0;
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < READINGS; i++) {
    const before = ours();
    const other = theirs();
    const took = ours() - before;
    if (took >= least) continue;
    least = took;
    offset = before + took / 2 - other;
  }
  return offset;
}

/**
 * A reader of the system's monotonic clock, microseconds, the same in all threads and in native code (process.hrtime, steady_clock).
 * Made once a thread and recording; reading it allocates nothing, which process.hrtime does.
 */
export function monotonicClock(): () => number {
  const system = (): number => Number(process.hrtime.bigint()) / 1000;
  const own = (): number => performance.now() * 1000;
  const ahead = offsetUs(system, own);
  return () => own() + ahead;
}
