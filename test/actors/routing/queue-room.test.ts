/** The limit of those who wait, over several groups. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { closeQueueRoom, createQueueRoom, openQueueRoom, QueueRoom } from '../../../actors/routing/queue-room.js';

const GROUPS = 3;

test('in any order of events as many are taken as there are places, and none more', () => {
  const event = fc.record({
    group: fc.nat({ max: GROUPS - 1 }),
    kind: fc.constantFrom('admit', 'start', 'finish', 'leave', 'end', 'begin'),
  });
  fc.assert(
    fc.property(fc.nat({ max: 4 }), fc.array(event, { maxLength: 200, size: 'max' }), (maxQueue, events) => {
      const slots = 2;
      const memory = createQueueRoom(maxQueue, GROUPS);
      const groups = Array.from({ length: GROUPS }, (_, i) => ({ room: new QueueRoom(memory, i), free: slots, waiting: 0, alive: false }));
      for (const { group, kind } of events) {
        const one = groups[group]!; // group < GROUPS
        if (kind === 'begin' && !one.alive) {
          openQueueRoom(memory, group);
          Object.assign(one, { free: slots, waiting: 0, alive: true });
        } else if (kind === 'end' && one.alive) {
          closeQueueRoom(memory, group);
          one.alive = false;
          one.room.tell(slots, 0); // a thread that is not gone yet changes nothing
          one.room.take();
        }
        if (!one.alive) continue;
        if (kind === 'start' && one.waiting > 0 && one.free > 0) {
          one.waiting--;
          one.free--;
        } else if (kind === 'finish' && one.free < slots) one.free++;
        else if (kind === 'leave' && one.waiting > 0) one.waiting--;
        one.room.tell(one.free, one.waiting);
        if (kind !== 'admit') continue;
        const live = groups.filter(({ alive }) => alive);
        const waiting = live.reduce((sum, each) => sum + each.waiting, 0);
        const room = maxQueue + live.reduce((sum, each) => sum + each.free, 0);
        assert.equal(one.room.waiting, waiting);
        assert.equal(one.room.take(), waiting < room);
        if (waiting < room) one.waiting++;
      }
    }),
  );
});

test('threads that take at the same time get exactly the places that there are', async () => {
  const threads = 4;
  const places = 10_000;
  const memory = createQueueRoom(places, threads);
  const url = new URL('../../../actors/routing/queue-room.js', import.meta.url).href;
  const code = `
    import { parentPort, workerData } from 'node:worker_threads';
    const { openQueueRoom, QueueRoom } = await import('${url}');
    const { memory, group, go, tries } = workerData;
    openQueueRoom(memory, group);
    const room = new QueueRoom(memory, group);
    room.tell(0, 0);
    Atomics.add(go, 0, 1);
    while (Atomics.load(go, 0) < ${threads}) {}
    let taken = 0;
    for (let i = 0; i < tries; i++) {
      if (!room.take()) continue;
      taken++;
      if (i % 3 === 0) room.tell(0, taken);
    }
    parentPort.postMessage(taken);`;
  const go = new Int32Array(new SharedArrayBuffer(4));
  const taken = await Promise.all(
    Array.from({ length: threads }, (_, group) => {
      const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`), {
        workerData: { memory, group, go, tries: places },
      });
      return new Promise<number>((resolve, reject) => worker.once('message', resolve).once('error', reject));
    }),
  );
  assert.equal(
    taken.reduce((a, b) => a + b, 0),
    places,
  );
});
