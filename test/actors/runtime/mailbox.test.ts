import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { createDoorbell, listen, park } from '../../../actors/runtime/doorbell.js';
import { createLink, EventLink, ParkedLink } from '../../../actors/runtime/mailbox.js';
import { eventually, inTime } from '../../helpers/eventually.js';
import type { LinkThreadData } from './link-thread.js';

interface Note {
  readonly n: number;
}

test('messages arrive once and in order, however they are cut into batches', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 30 }), (batches) => {
      const [a, b] = createLink(null, null);
      const sender = new ParkedLink<Note, Note>(a);
      const receiver = new ParkedLink<Note, Note>(b);
      let n = 0;
      for (const size of batches) {
        for (let i = 0; i < size; i++) sender.post({ n: n++ });
        sender.flush();
      }
      assert.equal(sender.behind(), batches.length);
      const got: number[] = [];
      receiver.drain((message) => got.push(message.n));
      assert.deepEqual(
        got,
        Array.from({ length: n }, (_, i) => i),
      );
      assert.equal(sender.behind(), 0);
      sender.close();
    }),
    { numRuns: 50 },
  );
});

test('an event link sends what was posted in one turn as one batch, without a flush', async () => {
  const [a, b] = createLink(null, null);
  const got: number[] = [];
  const sender = new EventLink<Note, Note>(a, () => {});
  const receiver = new EventLink<Note, Note>(b, (m) => got.push(m.n));
  sender.post({ n: 1 });
  sender.post({ n: 2 });
  await Promise.resolve();
  assert.equal(sender.behind(), 1);
  sender.post({ n: 3 });
  await eventually('it arrives', () => got.length === 3);
  assert.deepEqual(got, [1, 2, 3]);
  sender.close();
  receiver.close();
});

test('however much is posted in one turn arrives, in batches of bounded size', async () => {
  const [a, b] = createLink(null, null);
  const sender = new EventLink<Note, Note>(a, () => {});
  const receiver = new ParkedLink<Note, Note>(b);
  const count = 100_000;
  for (let n = 0; n < count; n++) sender.post({ n });
  await Promise.resolve();
  assert.equal(sender.behind(), Math.ceil(count / 1024));
  let got = 0;
  receiver.drain((m) => assert.equal(m.n, got++));
  assert.equal(got, count);
  sender.close();
});

test('the event loop turns between batches that take long', async () => {
  const [a, b] = createLink(null, null);
  const sender = new ParkedLink<Note, Note>(a);
  let got = 0;
  const receiver = new EventLink<Note, Note>(b, () => {
    got++;
    for (const end = performance.now() + 4; performance.now() < end; );
  });
  for (let n = 0; n < 100; n++) {
    sender.post({ n });
    sender.flush();
  }
  await eventually('the first is handled', () => got > 0);
  assert.ok(got < 100, `${got} of 100 batches were handled in one turn`);
  await eventually('all are handled', () => got === 100);
  sender.close();
  receiver.close();
});

test('a flush rings the doorbell of a parked peer, which then finds the message', () => {
  const bell = createDoorbell();
  const [a, b] = createLink(null, bell);
  const sender = new ParkedLink<Note, Note>(a);
  const receiver = new ParkedLink<Note, Note>(b);
  const heard = listen(bell);
  assert.equal(park(bell, heard, 0), false);
  sender.post({ n: 1 });
  sender.flush();
  assert.equal(park(bell, heard, 1000), true);
  let got = 0;
  receiver.drain((m) => {
    got = m.n;
  });
  assert.equal(got, 1);
  sender.close();
});

test('a sender sees when its peer is too far behind, and when it has caught up', () => {
  const [a, b] = createLink(null, null);
  const sender = new ParkedLink<Note, Note>(a, 3);
  const receiver = new ParkedLink<Note, Note>(b);
  for (let n = 0; n < 3; n++) {
    assert.equal(sender.full, false);
    sender.post({ n });
    sender.flush();
  }
  assert.equal(sender.full, true);
  receiver.drain(() => {});
  assert.equal(sender.full, false);
  sender.close();
});

test('a paused link keeps what arrives and hands it over in order later', async () => {
  const [a, b] = createLink(null, null);
  const got: number[] = [];
  const sender = new ParkedLink<Note, Note>(a);
  const receiver = new EventLink<Note, Note>(b, (m) => {
    got.push(m.n);
    if (m.n === 1) receiver.setPaused(true);
  });
  for (let n = 0; n < 4; n++) {
    sender.post({ n });
    sender.flush();
  }
  await eventually('it arrives', () => got.length === 2);
  await sleep(10);
  assert.deepEqual(got, [0, 1]);
  assert.equal(sender.behind(), 2);
  receiver.setPaused(false);
  assert.deepEqual(got, [0, 1, 2, 3]);
  receiver.close();
});

test('a handler may post to, resume or close the link it is called from', async () => {
  const [a, b] = createLink(null, null);
  const echoes: number[] = [];
  const seen: number[] = [];
  const sender = new EventLink<Note, Note>(a, (m) => echoes.push(m.n));
  const receiver = new EventLink<Note, Note>(b, (m) => {
    seen.push(m.n);
    receiver.setPaused(false);
    receiver.post({ n: m.n * 10 });
    if (m.n === 2) {
      receiver.flush();
      receiver.close();
      receiver.post({ n: 99 });
    }
  });
  for (const n of [1, 2, 3]) sender.post({ n });
  await eventually('it arrives', () => echoes.length === 2);
  await sleep(10);
  assert.deepEqual(seen, [1, 2]);
  assert.deepEqual(echoes, [10, 20]);
  sender.close();
});

test('batches of any size arrive whole and in order, also when the peer is further behind than there is room', () => {
  interface Sized extends Note {
    readonly body: Uint8Array;
  }
  // How many batches are sent before the peer handles some, and how large each is: around the room of a box, and far beyond.
  const size = fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 8100, max: 8300 }), fc.integer({ min: 10_000, max: 50_000 }));
  fc.assert(
    fc.property(fc.array(fc.array(size, { maxLength: 40 }), { maxLength: 6 }), (rounds) => {
      const [a, b] = createLink(null, null);
      const sender = new ParkedLink<never, Sized>(a);
      const receiver = new ParkedLink<Sized, never>(b);
      let n = 0;
      let got = 0;
      for (const sizes of rounds) {
        for (const bytes of sizes) {
          sender.post({ n, body: new Uint8Array(bytes).fill(n) });
          sender.flush();
          n++;
        }
        assert.equal(sender.behind(), sizes.length);
        receiver.drain((m) => {
          assert.equal(m.n, got++);
          assert.ok(m.body.every((byte) => byte === (m.n & 255)));
        });
      }
      assert.equal(got, n);
      sender.close();
    }),
    { numRuns: 60 },
  );
});

test('large messages arrive as they are and in their order among others, however far behind the peer is', () => {
  interface Text extends Note {
    readonly text?: string;
  }
  fc.assert(
    fc.property(fc.array(fc.boolean(), { maxLength: 60 }), (larges) => {
      const [a, b] = createLink(null, null);
      const sender = new ParkedLink<never, Text>(a);
      const receiver = new ParkedLink<Text, never>(b);
      const sent = larges.map((large, n): Text => (large ? { n, text: '\ud800é\u0301'.repeat(n) } : { n }));
      for (const message of sent) {
        if (message.text === undefined) sender.post(message);
        else sender.postLarge(message);
      }
      sender.flush();
      const got: Text[] = [];
      receiver.drain((message) => got.push(message));
      assert.deepEqual(got, sent);
      assert.equal(sender.behind(), 0);
      sender.close();
    }),
    { numRuns: 60 },
  );
});

test('a large message that cannot be sent is told, and what comes behind it arrives', async () => {
  const [a, b] = createLink(null, null);
  const told: unknown[] = [];
  const got: unknown[] = [];
  const sender = new EventLink<unknown, unknown>(a, () => {}, { onUnsendable: (message) => told.push(message) });
  const receiver = new EventLink<unknown, unknown>(b, (message) => got.push(message));
  const unsendable = (): void => {};
  sender.postLarge(unsendable);
  sender.post('next');
  await eventually('it arrives', () => got.length === 1);
  assert.deepEqual([told, got], [[unsendable], ['next']]);
  sender.close();
  receiver.close();
});

test('an event link wakes up for each batch of another thread, and a closed one keeps no process alive', () => {
  const script = `
    const { Worker } = require('node:worker_threads');
    Promise.all([import(process.argv[1] + 'actors/runtime/mailbox.js'), import(process.argv[1] + 'actors/runtime/doorbell.js')]).then(([m, d]) => {
      const [own, link] = m.createLink(null, null);
      const [bell, peerBell] = [d.createDoorbell(), d.createDoorbell()];
      const none = { memory: new SharedArrayBuffer(4096), readers: 1, maxEntryBytes: 1024 };
      const workerData = { link, bell: link.bell, peerBell, toEcho: none, fromEcho: none };
      new Worker(new URL(process.argv[1] + 'test/actors/runtime/echo-thread.js'), { workerData, transferList: [link.port] });
      let left = 500;
      const echo = new m.EventLink(own, () => {
        if (--left > 0) return echo.post({ k: 'again', body: new Uint8Array(left % 3 === 0 ? 20000 : 20) });
        echo.post({ k: 'end' });
        echo.flush();
        echo.close();
      });
      echo.post({ k: 'first' });
    });`;
  const compiled = new URL('../../../', import.meta.url).href;
  const { status, stderr } = spawnSync(process.execPath, ['-e', script, compiled], { encoding: 'utf8', timeout: 20_000 });
  assert.equal(stderr, '');
  assert.equal(status, 0);
});

test('bursts of any shape come back from another thread once and in order, and no ring is lost', async () => {
  interface Sized extends Note {
    readonly body: Uint8Array;
  }
  const size = fc.oneof(
    { weight: 8, arbitrary: fc.nat(200) },
    fc.integer({ min: 8000, max: 8400 }),
    fc.integer({ min: 20_000, max: 60_000 }),
  );
  const burst = fc.record({
    sizes: fc.array(size, { minLength: 1, maxLength: 30 }),
    flushEach: fc.boolean(),
    /** When the next one follows; when all is back, the other thread sleeps. */
    next: fc.constantFrom('at once', 'next turn', 'when all is back'),
  });
  const bursts = fc.array(burst, { minLength: 20, maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(bursts, fc.boolean(), async (all, parked) => {
      const [own, link] = createLink(null, null);
      const messages = all.reduce((sum, { sizes }) => sum + sizes.length, 0);
      const workerData: LinkThreadData = { link, parked, messages };
      const thread = new Worker(new URL('./link-thread.js', import.meta.url), { workerData, transferList: [link.port] });
      const ended = new Promise((resolve) => thread.once('exit', resolve));
      let [sent, back] = [0, 0];
      const echo = new EventLink<Sized, Sized>(own, ({ n, body }) => {
        assert.equal(n, back++);
        assert.ok(body.every((byte) => byte === (n & 255)));
      });
      const allBack = () => eventually('all is back', () => back === sent);
      for (const { sizes, flushEach, next } of all) {
        for (const bytes of sizes) {
          echo.post({ n: sent, body: new Uint8Array(bytes).fill(sent) });
          sent++;
          if (flushEach) echo.flush();
        }
        if (next === 'next turn') await sleep(0);
        else if (next === 'when all is back') await allBack();
      }
      await allBack();
      echo.close();
      assert.equal(await inTime('the thread ends', ended), 0);
    }),
    { numRuns: 12 },
  );
});

test('a large batch, which is transferred, takes nothing from its sender', () => {
  const [a, b] = createLink(null, null);
  const sender = new ParkedLink<never, { readonly body: Uint8Array }>(a);
  const receiver = new ParkedLink<{ readonly body: Uint8Array }, never>(b);
  const body = Uint8Array.from({ length: 100_000 }, (_, i) => i & 255);
  sender.post({ body });
  sender.flush();
  let got: Uint8Array | null = null;
  receiver.drain((m) => {
    got = m.body;
  });
  assert.deepEqual(new Uint8Array(got ?? []), body);
  assert.equal(body.byteLength, 100_000);
  sender.close();
});

test('a message that cannot be packed is told to its sender and does not hold up the others', async () => {
  const [a, b] = createLink(null, null);
  const bad: unknown[] = [];
  const got: unknown[] = [];
  let deep: unknown = 1;
  for (let i = 0; i < 100_000; i++) deep = [deep];
  const sender = new EventLink<never, unknown>(a, () => {}, { onUnsendable: (message) => bad.push(message) });
  const receiver = new EventLink<unknown, never>(b, (m) => got.push(m));
  const deepMessage = { k: 'submit', deep };
  sender.post({ n: 1 });
  sender.post(deepMessage);
  sender.post({ n: 2 });
  await eventually('it arrives', () => got.length === 2);
  assert.deepEqual(got, [{ n: 1 }, { n: 2 }]);
  assert.ok(bad.length === 1 && bad[0] === deepMessage);
  sender.close();
  receiver.close();
});
