/** What the scheduler tells those who look: recent steps, the map of the KV pool, timelines. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { RequestId } from '../../../../actors/messages/ids.js';
import { KV_CELL } from '../../../../actors/messages/kv-map.js';
import type { Mark } from '../../../../actors/messages/timeline.js';
import { StepRing } from '../../../../actors/scheduler/insight/recent-steps.js';
import { Rig } from '../rig.js';

const upTo = (n: number, first = 1): number[] => Array.from({ length: n }, (_, i) => ((first + i) % 40) + 8);
const marksOf = (rig: Rig, id: RequestId): readonly Mark[] => rig.scheduler.insight.timelines.of(id)?.marks ?? assert.fail('no timeline');
const kinds = (marks: readonly Mark[]): string[] => marks.map(({ kind }) => kind);

test('steps are told once, in order, and only as far as they are kept', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 900 }), { maxLength: 6 }), (batches) => {
      const ring = new StepRing();
      let made = 0;
      let since = 0;
      for (const batch of batches) {
        for (let i = 0; i < batch; i++) ring.add({ nowMs: made++, execUs: 1, numTokens: 3, promptTokens: 2, running: 1 });
        const { next, atMs, decodeTokens } = ring.since(since);
        assert.deepEqual(next, [made]);
        assert.deepEqual(atMs, Array.from({ length: batch }, (_, i) => made - batch + i).slice(-1024));
        assert.ok(decodeTokens.every((n) => n === 1));
        since = made;
      }
      assert.deepEqual(ring.since(made + 5).atMs, []);
      assert.ok(ring.since(0).atMs.length <= 1024);
    }),
    { numRuns: 30 },
  );
});

test('prompt tokens and decoded tokens of a step are told apart', () => {
  const rig = new Rig({ maxBatchTokens: 4 });
  rig.admit({ prompt: upTo(9), maxTokens: 5, ignoreEos: true });
  rig.run();
  const { promptTokens, decodeTokens } = rig.scheduler.insight.steps.since(0);
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  assert.deepEqual(promptTokens.slice(0, 3), [4, 4, 1]);
  assert.deepEqual([sum(promptTokens), sum(decodeTokens)], [9, 4]);
});

test('a timeline goes from the queue over the chunks of the prompt to the last token', () => {
  const rig = new Rig({ maxBatchTokens: 4 });
  const id = rig.admit({ prompt: upTo(9), maxTokens: 3, ignoreEos: true });
  assert.deepEqual(kinds(marksOf(rig, id)), ['queued']);
  rig.run();
  const marks = marksOf(rig, id);
  assert.deepEqual(kinds(marks), ['queued', 'started', 'prefill', 'prefill', 'prefill', 'first_token', 'sequence_ended', 'ended']);
  const chunks = marks.flatMap((mark) => (mark.kind === 'prefill' ? [[mark.from, mark.to]] : []));
  assert.deepEqual(chunks, [
    [0, 4],
    [4, 8],
    [8, 9],
  ]);
  assert.ok(marks.every(({ ms }, i) => i === 0 || ms >= (marks[i - 1]?.ms ?? 0) || marks[i]?.kind === 'prefill'));
  const { promptTokens, generatedTokens } = rig.scheduler.insight.timelines.of(id) ?? assert.fail();
  assert.deepEqual([promptTokens, generatedTokens], [9, 3]);
});

test('a preemption and the way back are marked, with what became of the KV', () => {
  for (const how of ['recompute', 'swap'] as const) {
    const rig = new Rig({ numBlocks: 8, numSwapBlocks: how === 'swap' ? 20 : 0, preemptionMode: how, enablePrefixCaching: false });
    const ids = [1, 2, 3].map((first) => rig.admit({ prompt: upTo(8, first * 10), maxTokens: 12, ignoreEos: true }));
    rig.run();
    const marks = ids.flatMap((id) => marksOf(rig, id));
    const preempted = marks.filter((mark) => mark.kind === 'preempted');
    assert.ok(preempted.length > 0);
    assert.ok(preempted.every((mark) => mark.how === how));
    assert.equal(marks.filter(({ kind }) => kind === 'resumed').length, preempted.length);
  }
});

test('a preemption that would swap and finds no room on the host is marked as recomputed', () => {
  const rig = new Rig({ numBlocks: 8, numSwapBlocks: 0, preemptionMode: 'swap', enablePrefixCaching: false });
  const ids = [1, 2, 3].map((first) => rig.admit({ prompt: upTo(8, first * 10), maxTokens: 12, ignoreEos: true }));
  rig.run();
  const preempted = ids.flatMap((id) => marksOf(rig, id)).filter((mark) => mark.kind === 'preempted');
  assert.ok(preempted.length > 0);
  assert.ok(preempted.every((mark) => mark.how === 'recompute'));
});

test('an aborted request ends as aborted; forks of it are not told as prefill', () => {
  const rig = new Rig();
  const id = rig.admit({ prompt: upTo(6), maxTokens: 20, bestOf: 3, ignoreEos: true });
  for (let i = 0; i < 6; i++) {
    rig.schedule();
    rig.update();
  }
  rig.abort(id);
  rig.run();
  const marks = marksOf(rig, id);
  assert.equal(marks.filter(({ kind }) => kind === 'prefill').length, 1);
  const last = marks.at(-1);
  assert.ok(last?.kind === 'ended' && last.how === 'aborted');
});

test('so many ended requests are kept, the oldest go first; 0 keeps none', () => {
  const rig = new Rig({ keptTimelines: 2 });
  const ids = [1, 2, 3].map((first) => rig.admit({ prompt: upTo(3, first), maxTokens: 2 }));
  rig.run();
  assert.deepEqual(
    ids.map((id) => rig.scheduler.insight.timelines.of(id) !== null),
    [false, true, true],
  );
  const none = new Rig({ keptTimelines: 0 });
  const id = none.admit({ prompt: [9], maxTokens: 2 });
  assert.notEqual(none.scheduler.insight.timelines.of(id), null, 'one that runs is told of');
  none.run();
  assert.equal(none.scheduler.insight.timelines.of(id), null);
});

test('a request has room for so many marks and always for its end', () => {
  const rig = new Rig({ maxBatchTokens: 1, numBlocks: 200, maxModelLen: 400, maxSlots: 1 });
  const id = rig.admit({ prompt: Array.from({ length: 300 }, (_, i) => (i % 40) + 8), maxTokens: 2, ignoreEos: true });
  rig.run();
  const timeline = rig.scheduler.insight.timelines.of(id) ?? assert.fail();
  assert.equal(timeline.marks.length, 128);
  assert.equal(timeline.marks.at(-1)?.kind, 'ended');
  assert.ok(timeline.leftOut > 150);
});

test('the map shows whose each block is, and in fewer cells the busiest of each', () => {
  const rig = new Rig({ numBlocks: 20 });
  const long = rig.admit({ prompt: upTo(9, 1), maxTokens: 3, ignoreEos: true });
  rig.run(); // leaves two full blocks in the cache
  rig.admit({ prompt: upTo(9, 1), maxTokens: 30, ignoreEos: true });
  rig.admit({ prompt: upTo(9, 1), maxTokens: 30, ignoreEos: true });
  rig.admit({ prompt: upTo(5, 20), maxTokens: 30, ignoreEos: true });
  rig.schedule();
  const { totalBlocks, blocksPerCell, cells, owners } = rig.scheduler.kvMap(1000);
  assert.deepEqual([totalBlocks, blocksPerCell, cells.length], [20, 1, 20]);
  const shown = (code: number): number => cells.filter((cell) => cell === code).length;
  const { kv } = rig.scheduler.stats();
  assert.equal(shown(KV_CELL.free), kv.free_blocks);
  assert.equal(shown(KV_CELL.cached), kv.cached_blocks);
  assert.equal(shown(KV_CELL.shared), 2);
  assert.equal(owners.length, 3);
  assert.ok(owners.every(({ id }) => id !== long));
  assert.equal(owners.reduce((sum, { blocks }) => sum + blocks, 0) - 2, kv.used_blocks, 'two blocks are of two owners');
  const small = rig.scheduler.kvMap(6);
  assert.deepEqual([small.blocksPerCell, small.cells.length], [4, 5]);
  for (let cell = 0; cell < 5; cell++) {
    const inside = cells.subarray(cell * 4, cell * 4 + 4);
    const held = inside.some((code) => code >= KV_CELL.shared);
    assert.equal((small.cells[cell] ?? 0) >= KV_CELL.shared, held, 'what is held is never hidden');
  }
});
