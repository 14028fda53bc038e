import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { createDoorbell, listen, park, ring } from '../../../actors/runtime/doorbell.js';

/** Longer than any test takes: whoever waits so long hangs. */
const LONG_MS = 600_000;
const ways = { sleeps: 0, looks: LONG_MS * 1000, 'looks for a moment, then sleeps': 1 };

for (const [way, spinUs] of Object.entries(ways)) {
  test(`a thread that ${way} hears the ring of another one`, async () => {
    const bell = createDoorbell();
    const ringer = new Worker(new URL('./bell-thread.js', import.meta.url), { workerData: { bell } });
    await once(ringer, 'online');
    for (let round = 0; round < 3; round++) {
      const heard = listen(bell);
      ringer.postMessage('ring');
      assert.equal(park(bell, heard, LONG_MS, spinUs), true);
    }
    await ringer.terminate();
  });

  test(`a thread that ${way} hears a ring that came before`, () => {
    const bell = createDoorbell();
    const heard = listen(bell);
    ring(bell);
    assert.equal(park(bell, heard, 0, spinUs), true);
    assert.equal(park(bell, heard, LONG_MS, spinUs), true);
  });

  test(`a thread that ${way} waits no longer than it is allowed to`, () => {
    const bell = createDoorbell();
    for (const timeoutMs of [0, 2]) assert.equal(park(bell, listen(bell), timeoutMs, spinUs), false);
  });
}
