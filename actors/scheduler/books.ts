/**
 * Whether the books of the scheduler agree: what its sequences say of themselves, and what the steps in flight will bring them. For
 * tests, between steps; slow.
 */
import { invariant } from '../runtime/invariant.js';
import type { Sequence } from './request.js';
import type { Roster } from './roster.js';
import type { StepRecord } from './step-record.js';

/** `inFlight`: records of all unanswered plans, oldest first. @throws BrokenInvariant when they disagree. */
export function checkBooks(roster: Roster, inFlight: readonly StepRecord[]): void {
  roster.checkIntegrity();
  const samples = new Map<Sequence, number>();
  const ends = new Map<Sequence, number>();
  const decoded = new Map<Sequence, number>();
  for (const { samples: sampled, pools, advances, decodes } of inFlight) {
    for (const planned of [sampled, pools]) {
      for (let i = 0; i < planned.size; i++) {
        const sequence = planned.live(i);
        if (sequence === null) continue;
        invariant(sequence.slot === planned.slot(i), 'a sequence changed its slot within a generation');
        samples.set(sequence, (samples.get(sequence) ?? 0) + planned.number(i));
      }
    }
    for (let i = 0; i < advances.size; i++) {
      const sequence = advances.live(i);
      if (sequence !== null) ends.set(sequence, advances.number(i));
    }
    for (let i = 0; i < decodes.size; i++) {
      const sequence = decodes.live(i);
      if (sequence !== null) decoded.set(sequence, (decoded.get(sequence) ?? 0) + decodes.number(i));
    }
  }
  for (const sequence of roster.running.items) {
    invariant(sequence.length - sequence.numKnown === (samples.get(sequence) ?? 0), 'placeholders and planned samples differ');
    const end = (ends.get(sequence) ?? sequence.numRetired) + (decoded.get(sequence) ?? 0);
    invariant(sequence.numComputed === end, 'computed tokens and planned rows differ');
  }
}
