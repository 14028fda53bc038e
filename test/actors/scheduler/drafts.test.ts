/** How many drafts a sequence gets: by the batch, and by how its drafts fare. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adaptiveLength, DraftHistory } from '../../../actors/scheduler/drafts.js';

const length = adaptiveLength({ maxTokens: 4, maxBatch: 64, rowCost: 0.05, freeRows: 185, inBlocks: false });

/** A history of `steps` steps whose drafts were right `right` at a time. */
function after(steps: number, right: (asked: number) => number, history = new DraftHistory()): DraftHistory {
  for (let i = 0; i < steps; i++) {
    const asked = length(history, 1);
    history.note(asked, asked, Math.min(asked, right(asked)));
  }
  return history;
}

test('a new sequence drafts, fewer tokens in a larger batch, and none beyond the limit', () => {
  const lengths = [1, 16, 36, 46, 61, 64, 65, 1000].map((batch) => length(new DraftHistory(), batch));
  assert.deepEqual(lengths, [4, 4, 4, 3, 2, 1, 0, 0]);
});

test('drafts that are always right stay long', () => {
  assert.equal(
    length(
      after(100, (asked) => asked),
      1,
    ),
    4,
  );
});

test('the worse the drafts the fewer there are', () => {
  let turn = 0;
  const half = length(
    after(200, () => turn++ % 2),
    1,
  );
  assert.ok(half >= 1 && half < 4, String(half));
});

test('where drafts cost more, fewer are worth it', () => {
  const dear = adaptiveLength({ maxTokens: 4, maxBatch: 64, rowCost: 0.4, freeRows: 185, inBlocks: false });
  assert.ok(dear(new DraftHistory(), 1) < 4);
});

test('useless drafts cease, and are tried again ever more seldom', () => {
  const history = new DraftHistory();
  const tried: number[] = [];
  for (let token = 0; token < 4000; token++) {
    const asked = length(history, 1);
    if (asked > 0) tried.push(token);
    history.note(asked, asked, 0);
  }
  const late = tried.filter((token) => token >= 2000).length;
  assert.ok(late > 10 && late < 120 && late < tried.length - late, JSON.stringify({ late, tried: tried.length }));
  assert.ok((tried.at(-1) ?? 0) > 3500, 'it never gives up');
});

test('a step that found nothing to draft counts as a failure, and plain steps as none', () => {
  const history = new DraftHistory();
  for (let i = 0; i < 60; i++) history.note(4, 0, 0);
  assert.equal(length(history, 1), 0);
  assert.deepEqual([history.accepted, history.rejected], [0, 0]);
});
