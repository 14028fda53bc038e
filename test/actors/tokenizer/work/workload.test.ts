import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../../../../actors/runtime/clock.js';
import { createCounters, TOKENIZER_COUNTER } from '../../../../actors/runtime/counters.js';
import { Workload } from '../../../../actors/tokenizer/work/workload.js';

function open() {
  const counters = createCounters(TOKENIZER_COUNTER.cells);
  return { workload: new Workload(counters), since: () => counters[TOKENIZER_COUNTER.busySinceMs] ?? -1, counters };
}

test('it tells since when the event loop is held, of nested work since the outer one began, and nothing afterwards', async () => {
  const { workload, since } = open();
  const before = nowMs();
  const told = workload.during(() => {
    const began = since();
    assert.ok(began >= before && began <= nowMs());
    assert.equal(
      workload.during(() => since()),
      began,
    );
    assert.equal(since(), began);
    return 'result';
  });
  assert.deepEqual([told, since()], ['result', 0]);
  assert.throws(
    () =>
      workload.during(() => {
        throw new Error('broken');
      }),
    { message: 'broken' },
  );
  assert.equal(since(), 0);
});

test('of several pieces it tells the one that has not got on for longest', async () => {
  const { workload, since } = open();
  const first = workload.begin();
  const began = since();
  assert.ok(began > 0);
  await sleep(2);
  const second = workload.begin();
  workload.during(() => assert.equal(since(), began, 'short work meanwhile changes nothing'));
  assert.equal(since(), began);
  const between = nowMs();
  await sleep(2);
  first.advanced();
  assert.ok(since() > began && since() <= between, 'now the second one is older');
  second.done();
  assert.ok(since() > between);
  first.done();
  assert.equal(since(), 0);
});

test('it adds up what was let go', () => {
  const { workload, counters } = open();
  workload.letGo(10);
  workload.letGo(5);
  assert.equal(counters[TOKENIZER_COUNTER.letGo], 15);
});
