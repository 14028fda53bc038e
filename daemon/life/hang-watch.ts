/**
 * Notices what hangs: looks at the pulse of each actor and says which stood still for longer than it may. Main thread; used by the engine,
 * which ends such actors.
 *
 * Time counts only as far as this thread gets to look. When the process was stopped and goes on (Ctrl-Z, a debugger), all its actors are
 * late, and none of them hangs.
 */
import { nowMs } from '../../actors/runtime/clock.js';

/** One thing that must go on. */
export interface Pulse {
  /** Changes with all progress; 0 while there is nothing to do. */
  mark(): number;
  /** How long the mark may stay the same now, ms. */
  limitMs(): number;
  /** Called once for each mark that stayed too long. */
  onHang(): void;
}

const LONGEST_INTERVAL_MS = 1000;
/** Looks within one limit: a hang is noticed this much late at most. */
const LOOKS = 4;

/** Looks until the returned function is called. `shortestMs`: the smallest limit there will be. */
export function watchForHangs(pulses: readonly Pulse[], shortestMs: number): () => void {
  const intervalMs = Math.min(LONGEST_INTERVAL_MS, shortestMs / LOOKS);
  const watched = pulses.map((pulse) => ({ pulse, mark: 0, stoodMs: 0 }));
  let lookedMs = nowMs();
  const timer = setInterval(() => {
    const now = nowMs();
    const passedMs = Math.min(now - lookedMs, 2 * intervalMs);
    lookedMs = now;
    for (const one of watched) {
      const mark = one.pulse.mark();
      one.stoodMs = mark === 0 || mark !== one.mark ? 0 : one.stoodMs + passedMs;
      one.mark = mark;
      if (one.stoodMs < one.pulse.limitMs()) continue;
      one.stoodMs = 0;
      one.pulse.onHang();
    }
  }, intervalMs);
  timer.unref();
  return () => clearInterval(timer);
}
