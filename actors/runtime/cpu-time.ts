/** Processor time of single threads, for limits and measurements that a crowded machine must not distort. Linux tells it, others do not. */
import { openSync, readSync } from 'node:fs';

/**
 * A clock of the processor time, ms, that the calling thread has used; null where the system does not tell. To be read in the thread that
 * made it. A reading costs a few microseconds.
 */
export function threadCpuClock(): (() => number) | null {
  let file: number;
  try {
    file = openSync('/proc/thread-self/schedstat', 'r');
  } catch {
    return null;
  }
  const buffer = Buffer.alloc(64);
  return () => Number.parseInt(buffer.toString('latin1', 0, readSync(file, buffer, 0, buffer.length, 0)), 10) / 1e6;
}
