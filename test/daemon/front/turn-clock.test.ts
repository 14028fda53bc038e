/** When what sockets bring has arrived. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { arrivalTime } from '../../../daemon/front/turn-clock.js';

function work(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until; );
}

test('what two sockets have at the same time arrives at the same time, though the first takes long to read', async (t) => {
  const arrivals: number[] = [];
  const server = createServer((socket) =>
    socket.on('data', () => {
      arrivals.push(arrivalTime());
      work(20);
    }),
  ).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const sockets: Socket[] = [];
  for (let i = 0; i < 2; i++) {
    const socket = connect(address.port, '127.0.0.1');
    await once(socket, 'connect');
    sockets.push(socket);
  }
  await nextTurn();
  for (const socket of sockets) socket.write('x');
  work(20); // both lie there when the event loop comes to look
  while (arrivals.length < 2) await nextTurn();
  assert.equal(arrivals[0], arrivals[1]);
  for (const socket of sockets) socket.destroy();
});

test('what comes in another turn arrives later', async () => {
  const first = arrivalTime();
  work(2);
  assert.equal(arrivalTime(), first);
  await nextTurn();
  await nextTurn();
  assert.ok(arrivalTime() > first);
});
