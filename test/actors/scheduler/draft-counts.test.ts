/** The counts of drafts, and when the log tells of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DraftCounters } from '../../../actors/scheduler/draft-counts.js';

test('the log tells of drafts once in a thousand full samples, of those since the line before', () => {
  const counters = new DraftCounters(4);
  for (const accepted of [4, 1]) {
    for (let i = 0; i < 999; i++) counters.note(4, accepted);
    assert.equal(counters.report(), null);
    counters.note(4, accepted);
    assert.deepEqual(counters.report(), { drafted: 4000, accepted: 1000 * accepted, rate: accepted / 4, tokensPerSample: 1 + accepted });
    assert.equal(counters.report(), null);
  }
  assert.deepEqual(counters.snapshot(), {
    drafts_total: 2000,
    draft_tokens_total: 8000,
    accepted_tokens_total: 5000,
    accepted_per_position: [2000, 1000, 1000, 1000],
    accepted_histogram: [0, 1000, 0, 0, 1000],
  });
});
