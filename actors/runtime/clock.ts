/** The one clock of all threads: they share a time origin, so times taken in one can be compared in another. */

/** Milliseconds since 1970 with a fraction; monotonic within the process. */
export function nowMs(): number {
  return performance.timeOrigin + performance.now();
}
