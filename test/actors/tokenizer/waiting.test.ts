/**
 * What waits in the tokenizer actor to be encoded or decoded: in which order, beside the tokens of others, and dropped when nobody asks
 * any more.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { RequestId } from '../../../actors/messages/ids.js';
import { nowMs } from '../../../actors/runtime/clock.js';
import { TOKENIZER_COUNTER } from '../../../actors/runtime/counters.js';
import { start } from './demo.js';
import { demoModel, Harness, id } from './harness.js';

const longText = { kind: 'text', text: 'one two three '.repeat(20_000), addSpecialTokens: false } as const;

test('short prompts overtake long ones, which are encoded one after the other, and not at all when they were aborted', async () => {
  const harness = await start();
  const long = { kind: 'text', text: 'one two three '.repeat(20_000), addSpecialTokens: false } as const;
  // Only a prompt that is cut may have more tokens than the model takes.
  for (const n of [1, 2, 3, 4, 5, 6]) harness.submit(n, long, { truncatePromptTokens: 10 });
  harness.handlers.fromFront({ k: 'abort', ids: [id(2), id(3), id(4), id(5)] });
  harness.submit(7, { kind: 'text', text: 'short', addSpecialTokens: false });
  const ended = () => harness.front.flatMap((m) => (m.k === 'encoded' || m.k === 'failed' ? [m.id] : []));
  await harness.until(() => ended().length === 3);
  assert.deepEqual(ended(), [7, 1, 6]);
});

test('calls that are dropped while they wait are let go at once and answered by nothing; only the text at hand goes on', async () => {
  const harness = await start();
  const calls = Array.from({ length: 20 }, () => harness.ask({ k: 'encode', prompt: longText }));
  calls.push(harness.ask({ k: 'decode', ids: new Array<number>(200_000).fill(300), skipSpecialTokens: false }));
  harness.handlers.fromFront({ k: 'abort', ids: calls });
  await nextTurn();
  await nextTurn();
  assert.equal(harness.letGo, 21, 'the first, too, had not begun');
  const at = harness.ask({ k: 'encode', prompt: longText });
  const waiting = Array.from({ length: 5 }, () => harness.ask({ k: 'encode', prompt: longText }));
  for (let i = 0; i < 20; i++) await nextTurn();
  harness.handlers.fromFront({ k: 'abort', ids: [at, ...waiting] });
  await nextTurn();
  assert.ok(harness.letGo >= 26, 'all but the one that is being encoded');
  assert.ok((await harness.encode(longText)).length > 0);
  assert.equal(harness.letGo, 28);
  assert.deepEqual(harness.order, ['front reply']);
});

test('a long decode that is dropped ends with its slice', async () => {
  const harness = await start();
  const call = harness.ask({ k: 'decode', ids: new Array<number>(500_000).fill(300), skipSpecialTokens: false });
  for (let i = 0; i < 3; i++) await nextTurn();
  harness.handlers.fromFront({ k: 'abort', ids: [call] });
  await nextTurn();
  await nextTurn();
  assert.equal(harness.letGo, 1);
  assert.deepEqual(harness.order, []);
});

test('a request is let go of when it is encoded, has failed, or was aborted, once', async () => {
  const harness = await start();
  await harness.admit(1);
  harness.submit(2, { kind: 'ids', ids: [-1] });
  harness.submit(3, longText);
  harness.submit(4, longText);
  harness.handlers.fromFront({ k: 'abort', ids: [id(4), id(1)] });
  await harness.until(() => harness.failure(3) !== undefined);
  await nextTurn();
  assert.equal(harness.letGo, 4);
});

test('clients take turns at long texts, and texts of a length wait for no much longer one', async () => {
  const harness = await start();
  const huge = { kind: 'text', text: 'one two three '.repeat(60_000), addSpecialTokens: false } as const;
  const middle = { kind: 'text', text: 'one two three '.repeat(4000), addSpecialTokens: false } as const;
  const asked: RequestId[] = [];
  for (const client of [1, 1, 1, 2]) asked.push(harness.ask({ k: 'encode', prompt: huge }, client));
  for (const client of [1, 1, 3]) asked.push(harness.ask({ k: 'encode', prompt: middle }, client));
  // Which of the askers, counted from 1; calls are numbered with the requests.
  const ended = () => harness.front.flatMap((m) => (m.k === 'reply' ? [asked.indexOf(m.call as RequestId) + 1] : []));
  await harness.until(() => ended().length === 7);
  assert.deepEqual(
    ended().filter((n) => n < 5),
    [1, 4, 2, 3],
  );
  assert.deepEqual(
    ended().filter((n) => n >= 5),
    [7, 5, 6],
  );
  assert.ok(ended().indexOf(6) < ended().indexOf(2));
});

test('while the library encodes, the watch sees since when', async () => {
  const harness = await start();
  const since = () => harness.counters[TOKENIZER_COUNTER.busySinceMs] ?? -1;
  const before = nowMs();
  const call = harness.ask({ k: 'encode', prompt: longText });
  for (let i = 0; i < 5; i++) await nextTurn();
  const began = since();
  assert.ok(began >= before && began <= nowMs());
  harness.handlers.fromFront({ k: 'abort', ids: [call] });
  assert.equal(since(), began, 'an abort does not end what has begun');
  await harness.encode({ kind: 'text', text: 'short', addSpecialTokens: false });
  await harness.encode(longText);
  await nextTurn();
  assert.equal(since(), 0);
});

test('the tokens of others go between the slices of a long decode, whose text is that of all ids', async () => {
  const harness = await Harness.start(demoModel);
  await harness.admit(1);
  const [token = 0] = await harness.encode({ kind: 'text', text: 'x', addSpecialTokens: false });
  const ids = await harness.encode({ kind: 'text', text: '日本 x'.repeat(10_000), addSpecialTokens: false });
  harness.order.length = 0;
  const decoded = harness.decode(ids);
  setImmediate(() => harness.step([[1, token]]));
  assert.equal(await decoded, '日本 x'.repeat(10_000));
  assert.deepEqual(harness.order, ['front deltas', 'front reply']);
});

test('of short prompts that come together one is encoded a turn of the event loop: the tokens of others go between', async () => {
  const harness = await Harness.start(demoModel);
  await harness.admit(1);
  const [token = 0] = await harness.encode({ kind: 'text', text: 'x', addSpecialTokens: false });
  harness.order.length = 0;
  for (let n = 2; n <= 9; n++) harness.submit(n, { kind: 'text', text: 'Hello', addSpecialTokens: false });
  setImmediate(() => harness.step([[1, token]]));
  await harness.until(() => harness.scheduler.length === 9);
  const at = harness.order.indexOf('front deltas');
  assert.ok(at >= 0 && at < harness.order.lastIndexOf('scheduler admit'), harness.order.join(', '));
});
