/**
 * The clock of arrivals. What sockets bring in one turn of the event loop lay there when the turn began, however long the messages
 * read before it took: so all of it arrived when the first of it was read. Main thread.
 */

let beganMs: number | null = null;

/** When this turn's first arrival was asked for, performance.now(). To be called where bytes have just been read. */
export function arrivalTime(): number {
  if (beganMs !== null) return beganMs;
  beganMs = performance.now();
  setImmediate(forget); // runs behind the last socket of this turn, before any of the next
  return beganMs;
}

function forget(): void {
  beganMs = null;
}
