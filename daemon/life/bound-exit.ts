/**
 * Bounds the end of the process. Node joins all workers and the threads of libuv's pool before it exits, so one native call that does not
 * return (a device that hangs, a pattern without end) would keep the process for ever, whatever signal it gets but SIGKILL. Called by
 * pools.ts: a process without threads of ours needs no bound.
 */
import { type Addon, loadAddon } from '../../native/index.js';

/** Joining threads that do end takes milliseconds, a step of a slow CPU seconds; what such a thread still does is of no use by then. */
const JOIN_LIMIT_MS = 1000;
let bound = false;

/** From now on the process is gone this long after it begins to exit, with its code. Loads the addon now: a loader may hang later. */
export function boundExit(): void {
  if (bound) return;
  bound = true;
  const addon = loaded();
  if (addon !== null) process.once('exit', (code) => addon.exitWithin(code & 0xff, JOIN_LIMIT_MS)); // as the system cuts it
}

/** Null when it was not built: then there is no native engine either, and whoever starts one says so. */
function loaded(): Addon | null {
  try {
    return loadAddon();
  } catch {
    return null;
  }
}
