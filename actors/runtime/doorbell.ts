/**
 * The one word a parked thread sleeps on, or that wakes an event loop. Whoever leaves something for the thread (a message, a plan, a stop
 * request) rings after leaving it; the thread reads the word before it looks around and sleeps only while the word is unchanged, so no
 * ring is lost.
 * The idea of counters plus a parked worker is piscina's.
 */

/** Cache line, so that two bells never share one. */
const BELL_BYTES = 64;

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

/** Blocks the thread until a ring after `heard`, or `timeoutMs`. True when it rang. */
export function park(bell: Doorbell, heard: number, timeoutMs: number): boolean {
  return Atomics.wait(bell, 0, heard, Math.max(0, timeoutMs)) !== 'timed-out';
}

/** As `park`, for an event loop: calls `onRing` in a later turn, once, when it has rung after `heard`. Does not keep the loop alive. */
export function onceRung(bell: Doorbell, heard: number, onRing: () => void): void {
  const waiting = Atomics.waitAsync(bell, 0, heard);
  if (waiting.async) void waiting.value.then(onRing);
  else setImmediate(onRing);
}
