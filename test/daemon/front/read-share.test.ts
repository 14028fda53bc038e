/** What is read of a connection in a turn of the event loop is bounded, and goes on in a later one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ReadShare } from '../../../daemon/front/read-share.js';
import { eventually } from '../../helpers/eventually.js';

test('a share lasts for one long read or many short ones, and is there again in the next turn', async () => {
  let again = 0;
  const share = new ReadShare(() => again++);
  for (let i = 0; i < 63; i++) share.took(1024);
  assert.equal(share.over, false);
  share.took(1024);
  share.took(70_000);
  assert.deepEqual([share.over, again], [true, 0]);
  await turn();
  assert.deepEqual([share.over, again], [false, 1]);
  share.took(65_536);
  assert.equal(share.over, true);
  await turn();
  assert.equal(again, 2);
});

test('a message of many megabytes is read with pauses, the one behind it without', async () => {
  let again = 0;
  const share = new ReadShare(() => again++);
  share.took(5 * 2 ** 20);
  assert.deepEqual([share.over, again], [true, 0]);
  await eventually('it goes on', () => again === 1);
  share.nextMessage();
  share.took(2 ** 20);
  await turn();
  assert.equal(again, 2);
});
