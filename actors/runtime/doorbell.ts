/**
 * The one word a parked thread sleeps on, or that wakes an event loop. Whoever leaves something for the thread (a message, a plan, a stop
 * request) rings after leaving it; the thread reads the word before it looks around and sleeps only while the word is unchanged, so no
 * ring is lost.
 *
 * A ring may also go ahead of what is to come (a rouse): waking takes some tens of microseconds, which then pass while that is still being
 * made. Who is woken so and finds nothing looks at its bell for a while before it sleeps again; see `park`. While a thread looks, a ring
 * costs whoever rings next to nothing; one that sleeps has to be woken by a call into the system.
 * The idea of counters plus a parked worker is piscina's.
 */

/** Cache line, so that two bells never share one. */
const BELL_BYTES = 64;
/** Looks at a bell for each look at the clock, which takes as long as some ten of them. */
const LOOKS = 32;

export type Doorbell = Int32Array<SharedArrayBuffer>;

export function createDoorbell(): Doorbell {
  return new Int32Array(new SharedArrayBuffer(BELL_BYTES));
}

export function ring(bell: Doorbell): void {
  Atomics.add(bell, 0, 1);
  Atomics.notify(bell, 0);
}

/** Value to pass to `park`; take it before looking for work. */
export function listen(bell: Doorbell): number {
  return Atomics.load(bell, 0);
}

/**
 * Blocks the thread until a ring after `heard`, or `timeoutMs`; of that, it looks at the bell for up to `spinUs` and then sleeps. True when
 * it rang.
 */
export function park(bell: Doorbell, heard: number, timeoutMs: number, spinUs = 0): boolean {
  if (spinUs > 0 && rangWithin(bell, heard, Math.min(timeoutMs, spinUs / 1000))) return true;
  return Atomics.wait(bell, 0, heard, Math.max(0, timeoutMs - spinUs / 1000)) !== 'timed-out';
}

/** Looks without sleeping: keeps a processor busy for so long. */
function rangWithin(bell: Doorbell, heard: number, ms: number): boolean {
  const end = performance.now() + ms;
  do {
    for (let look = 0; look < LOOKS; look++) if (Atomics.load(bell, 0) !== heard) return true;
  } while (performance.now() < end);
  return false;
}

/** As `park`, for an event loop: calls `onRing` in a later turn, once, when it has rung after `heard`. Does not keep the loop alive. */
export function onceRung(bell: Doorbell, heard: number, onRing: () => void): void {
  const waiting = Atomics.waitAsync(bell, 0, heard);
  if (waiting.async) void waiting.value.then(onRing);
  else setImmediate(onRing);
}
