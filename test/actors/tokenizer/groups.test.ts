/** Requests of a tokenizer in several engine groups, which come and go. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { demoModel, Harness, id, int32 } from './harness.js';

const started = { started: [{ id: id(1), queueMs: 1, cachedTokens: 0 }] };

test('where a request goes is told to the front, before its tokens can come', async () => {
  const harness = await Harness.start(demoModel, {}, 2);
  await harness.admit(1);
  harness.select(1);
  await harness.admit(2);
  assert.deepEqual(
    harness.front.filter((m) => m.k === 'routed').map((m) => [m.id, m.group]),
    [
      [1, 0],
      [2, 1],
    ],
  );
  harness.handlers.fromFront({ k: 'abort', ids: [id(1), id(2)] });
  assert.deepEqual(
    harness.sent.filter(({ message }) => message.k === 'abort').map(({ group, message }) => [group, message]),
    [
      [0, { k: 'abort', ids: [1] }],
      [1, { k: 'abort', ids: [2] }],
    ],
    'each group hears of its own',
  );
});

test('what has not begun moves at once when its group ends, what has begun waits for its own group', async () => {
  const harness = await Harness.start(demoModel, {}, 2);
  await harness.admit(1);
  await harness.admit(2);
  harness.step([[1, 70]], started);
  harness.endGroup(0);
  const moved = harness.sent.filter(({ group }) => group === 1).map(({ message }) => message);
  assert.deepEqual(
    moved.map((m) => m.k === 'admit' && [m.id, m.again]),
    [[2, true]],
  );
  harness.step([[2, 71]]); // of the group that is over: nobody's any more
  assert.equal(harness.deltas(2).length, 0);
  harness.beginGroup(0);
  const { message: back, group } = harness.sent.at(-1)!; // the one before made it two
  assert.ok(group === 0 && back.k === 'admit' && back.id === 1);
  assert.deepEqual(back.generated.map(int32), [[70]]);
  harness.select(1);
  harness.step([[2, 71, 3]]);
  assert.equal(harness.deltas(2).length, 1);
  harness.select(0);
  harness.step([[1, 72, 3]]);
  assert.equal(harness.deltas(1).at(-1)?.finish, 'length');
  assert.equal(harness.handlers.size(), 0);
});

test('a request that is in two groups that end is answered once, with a failure', async () => {
  const harness = await Harness.start(demoModel, {}, 3);
  await harness.admit(1);
  harness.endGroup(0);
  assert.equal(harness.failure(1), undefined);
  harness.endGroup(1);
  assert.deepEqual(harness.failure(1)?.data, { retriable: true });
  harness.beginGroup(0);
  harness.beginGroup(1);
  assert.equal(harness.sent.filter(({ message }) => message.k === 'admit').length, 2);
});

test('while no group is there requests wait, and go to the first that comes', async () => {
  const harness = await Harness.start(demoModel, {}, 2);
  harness.endGroup(0);
  harness.endGroup(1);
  harness.submit(1, { kind: 'text', text: 'Hello', addSpecialTokens: false });
  await harness.until(() => harness.front.some((m) => m.k === 'encoded'));
  assert.equal(harness.sent.length, 0);
  harness.beginGroup(1);
  assert.deepEqual(
    harness.sent.map(({ group, message }) => [group, message.k]),
    [[1, 'admit']],
  );
});

test('what has not begun when all groups have ended goes to the first that comes, also when it is another one', async () => {
  const harness = await Harness.start(demoModel, {}, 2);
  await harness.admit(1);
  await harness.admit(2);
  harness.step([[1, 70]], started);
  harness.endGroup(1);
  harness.endGroup(0);
  const before = harness.sent.length;
  harness.beginGroup(1);
  const sent = () => harness.sent.slice(before).map(({ group, message }) => message.k === 'admit' && [group, message.id]);
  assert.deepEqual(sent(), [[1, 2]]);
  harness.beginGroup(0);
  assert.deepEqual(sent(), [
    [1, 2],
    [0, 1],
  ]);
});
