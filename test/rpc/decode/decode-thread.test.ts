/** The thread that decodes large messages as the main thread sees it: it ends when it has nothing to do, and loses nothing then. */
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DecodeThread } from '../../../rpc/decode/decode-thread.js';

const how = { as: 'value', face: '', maxBytes: 2 ** 20, limits: new Map() } as const;
const numbers = [1, 2, 3];

test('a message that comes while the thread ends for want of work is read by another one', async () => {
  for (const idleMs of [1, 20]) {
    const thread = new DecodeThread(idleMs);
    for (let i = 0; i < 5; i++) {
      const decoded = await thread.decode([Buffer.from(JSON.stringify(numbers))], how);
      assert.deepEqual(decoded, { value: numbers }, `message ${i}`);
      // Timers of one length go off in the order in which they were set: this one right behind that which ends the thread.
      await sleep(idleMs);
    }
  }
});
