/** The books of the scheduler: that a disagreement between sequences and the steps in flight is seen, whatever it is about. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RequestId } from '../../../actors/messages/ids.js';
import { BrokenInvariant } from '../../../actors/runtime/invariant.js';
import { checkBooks } from '../../../actors/scheduler/books.js';
import { Timelines } from '../../../actors/scheduler/insight/timelines.js';
import { Planner } from '../../../actors/scheduler/planner.js';
import { Request, type Sequence } from '../../../actors/scheduler/request.js';
import { StatsCounters } from '../../../actors/scheduler/stats.js';
import { StepRecord } from '../../../actors/scheduler/step-record.js';
import { bytes, defaultOptions as options, samplingRow } from './rig.js';

/** A prompt of six tokens whose step is in flight: it samples the first token. */
function planned(): { sequence: Sequence; check: (records?: readonly StepRecord[]) => void } {
  const planner = new Planner(options, new StatsCounters(null), new Timelines(1));
  const prompt = [1, 2, 3, 4, 5, 6];
  const message = {
    ...{ k: 'admit' as const, id: 1 as RequestId, promptIds: bytes(prompt), generated: [], finished: [], bias: bytes([]) },
    samplingRow: new Uint8Array(samplingRow({ prompt }).buffer),
    ...{ maxTokens: 8, stopTokenIds: [], ignoreEos: false, bestOf: 1, priority: 0, arrivalMs: 0, turn: 0 },
  };
  planner.roster.enqueue(new Request(message, { options, owner: 0, rank: 0, ordinal: 0, nowMs: 0 }));
  const record = new StepRecord();
  assert.notEqual(planner.plan(1, record, 0, 0), null);
  const [sequence] = planner.roster.running.items;
  assert.ok(sequence);
  return { sequence, check: (records = [record]) => checkBooks(planner.roster, records) };
}

const disagreement = (message: string) => (error: unknown) => error instanceof BrokenInvariant && error.message.includes(message);

test('a step in flight and its sequence agree', () => {
  planned().check();
});

test('a step that is forgotten while it is in flight is missed', () => {
  const { check } = planned();
  assert.throws(() => check([]), disagreement('placeholders and planned samples differ'));
});

test('a token that no step samples is seen', () => {
  const { sequence, check } = planned();
  sequence.length++;
  assert.throws(() => check(), disagreement('placeholders and planned samples differ'));
});

test('a position that no step computes is seen', () => {
  const { sequence, check } = planned();
  sequence.numComputed--;
  assert.throws(() => check(), disagreement('computed tokens and planned rows differ'));
});

test('a sequence in another slot than its step has is seen', () => {
  const { sequence, check } = planned();
  sequence.slot = options.maxSlots; // none that another one has
  assert.throws(() => check(), disagreement('changed its slot'));
});
