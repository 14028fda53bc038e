/**
 * Tells waiting requests their place: once when a schedule left them waiting, then on change, each at most every 250 ms. Runs in the
 * scheduler thread.
 */
import type { Events } from './events.js';
import { type Request, type Sequence, WAITING } from './request.js';
import type { Roster } from './roster.js';

const EVERY_MS = 250;

export class QueueNotices {
  /** Admitted since the last schedule. */
  private newcomers: Sequence[] = [];
  private scannedMs = 0;

  /** A request that has never run joined the queue. */
  joined(request: Request): void {
    const leader = request.sequences[0];
    if (leader !== undefined) this.newcomers.push(leader);
  }

  /** To be called after a schedule that could have admitted everything. */
  scheduled(roster: Roster, events: Events, nowMs: number): void {
    for (const sequence of this.newcomers) {
      if (sequence.state === WAITING && !sequence.request.started) tell(sequence, roster.waiting.indexOf(sequence), events, nowMs);
    }
    if (this.newcomers.length > 0) this.newcomers = [];
    if (roster.numUnstarted === 0 || nowMs - this.scannedMs < EVERY_MS) return;
    this.scannedMs = nowMs;
    const { items } = roster.waiting;
    for (let position = 0; position < items.length; position++) {
      const sequence = items[position]!; // position < length
      const { request } = sequence;
      if (request.started || request.noticedPosition === position || nowMs - request.noticedMs < EVERY_MS) continue;
      tell(sequence, position, events, nowMs);
    }
  }
}

function tell({ request }: Sequence, position: number, events: Events, nowMs: number): void {
  request.noticedPosition = position;
  request.noticedMs = nowMs;
  events.notice({ kind: 'queued', id: request.id, position });
}
