/**
 * Tells whether this process stood still lately: a client that does not run cannot answer pings, and a daemon is right to drop it. A soak
 * on a crowded machine must know its own faults from those of the daemon.
 */

const BEAT_MS = 100;
/** Half the ping interval of the target: a shorter stop leaves time to answer. */
const STOP_MS = 1000;
/** A drop is noticed this long after the stop that caused it, at most. */
const MEMORY_MS = 20_000;

let last = performance.now();
let stoppedAt = Number.NEGATIVE_INFINITY;

/** Begins to watch; the function ends it. */
export function watchPulse(onStop: (ms: number) => void): () => void {
  last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    if (now - last > STOP_MS) {
      stoppedAt = now;
      onStop(now - last);
    }
    last = now;
  }, BEAT_MS);
  return () => clearInterval(timer);
}

/** True when this process stood still not long ago, or does so until now. */
export function stoodStill(): boolean {
  const now = performance.now();
  return now - stoppedAt < MEMORY_MS || now - last > STOP_MS;
}
