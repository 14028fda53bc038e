/**
 * The start-up of several ranks as one: their sums, phase by phase. A phase is the group's until all that have begun it are through, so
 * what is told never goes back. Main thread.
 */
import type { Progress } from '../../actors/messages/control.js';

type Phase = Progress['phase'];
type Report = (progress: Progress) => void;

export class SummedProgress {
  readonly #ranks: readonly Map<Phase, Progress>[];
  readonly #report: Report;

  constructor(numRanks: number, report: Report) {
    this.#ranks = Array.from({ length: numRanks }, () => new Map<Phase, Progress>());
    this.#report = report;
  }

  /** What rank `rank` tells of itself. */
  of(rank: number): Report {
    const own = this.#ranks[rank] ?? new Map<Phase, Progress>();
    return (progress) => {
      own.set(progress.phase, progress);
      const phases = [...own.keys()];
      const earlier = phases.slice(0, phases.indexOf(progress.phase));
      if (earlier.every((phase) => this.#isOver(phase))) this.#report(this.#sum(progress.phase));
    };
  }

  #isOver(phase: Phase): boolean {
    return this.#ranks.every((rank) => {
      const seen = rank.get(phase);
      return seen !== undefined && seen.done >= seen.total;
    });
  }

  #sum(phase: Phase): Progress {
    const known = this.#ranks.map((rank) => rank.get(phase)).filter((p) => p !== undefined);
    const sum = (of: (p: Progress) => number): number => known.reduce((total, p) => total + of(p), 0);
    return { phase, done: sum((p) => p.done), total: sum((p) => p.total) };
  }
}
