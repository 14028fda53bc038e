/** Processor time of single threads: how much they had, for limits that a crowded machine must not distort, and who goes first. Linux only. */
import { openSync, readlinkSync, readSync } from 'node:fs';
import { setPriority } from 'node:os';

/** A third of the share of an ordinary thread. */
const BACKGROUND = 5;

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

/** Where processors are short, other threads go before the calling one from now on. No effect where threads have no priority of their own. */
export function giveWay(): void {
  try {
    const [threadId] = /\d+$/.exec(readlinkSync('/proc/thread-self')) ?? [];
    if (threadId !== undefined) setPriority(Number(threadId), BACKGROUND);
  } catch {
    // Not Linux, or not allowed: it is a courtesy.
  }
}

/** The same for a process that has just begun. */
export function letOthersFirst(pid: number): void {
  try {
    setPriority(pid, BACKGROUND);
  } catch {
    // It has ended, or it is not allowed.
  }
}
