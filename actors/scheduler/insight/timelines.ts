/**
 * What happened to each request, for those who ask later: a few marks a request, more only for chunks of its prompt and preemptions,
 * none for a decoded token. Those of ended requests stay until newer ones take their places. Runs in the scheduler thread.
 */
import type { RequestId } from '../../messages/ids.js';
import type { Mark, Timeline } from '../../messages/timeline.js';
import type { Request } from '../request.js';

/** Of one request. The last place is kept for its end. */
const MAX_MARKS = 128;

interface Kept {
  readonly request: Request;
  readonly marks: Mark[];
  leftOut: number;
}

export class Timelines {
  private readonly live = new Map<RequestId, Kept>();
  /** Oldest first. */
  private readonly ended = new Map<RequestId, Timeline>();
  private readonly maxEnded: number;

  constructor(maxEnded: number) {
    this.maxEnded = maxEnded;
  }

  begin(request: Request, ms: number): void {
    this.live.set(request.id, { request, marks: [{ kind: 'queued', ms }], leftOut: 0 });
  }

  mark(id: RequestId, mark: Mark): void {
    const kept = this.live.get(id);
    if (kept === undefined) return;
    if (kept.marks.length < MAX_MARKS - 1) kept.marks.push(mark);
    else kept.leftOut++;
  }

  /** The request is over. */
  end(id: RequestId, how: 'finished' | 'aborted' | 'refused', ms: number): void {
    const kept = this.live.get(id);
    if (kept === undefined) return;
    this.live.delete(id);
    if (this.maxEnded === 0) return;
    kept.marks.push({ kind: 'ended', how, ms });
    if (this.ended.size >= this.maxEnded) {
      for (const oldest of this.ended.keys()) {
        this.ended.delete(oldest);
        break;
      }
    }
    this.ended.set(id, timelineOf(kept));
  }

  /** `null`: unknown, or forgotten. */
  of(id: RequestId): Timeline | null {
    const kept = this.live.get(id);
    return kept === undefined ? (this.ended.get(id) ?? null) : timelineOf(kept);
  }
}

function timelineOf({ request, marks, leftOut }: Kept): Timeline {
  const generatedTokens = request.sequences.reduce((sum, sequence) => sum + sequence.numGenerated, 0);
  return { arrivalMs: request.arrivalMs, promptTokens: request.promptLen, generatedTokens, marks: [...marks], leftOut };
}
