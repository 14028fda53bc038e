/** What has gone ahead of a large message is forgotten when its end does not come, or nobody reads it: over real sockets. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { eventually } from '../../helpers/eventually.js';
import { rawConnect } from '../../helpers/wire/raw-http.js';
import { withFront } from './echo-front.js';
import { KeptAhead } from './kept-ahead.js';

const part = Buffer.alloc(2_000_000, ' ');

async function open(port: number): Promise<WebSocket> {
  const ws = new WebSocket(`ws://127.0.0.1:${port}/`, 'jsonrpc');
  ws.on('error', () => {});
  await once(ws, 'open');
  return ws;
}

test('a client that leaves in the middle of a message, or sends one of the wrong kind, leaves nothing', () => {
  const ahead = new KeptAhead();
  return withFront({ ahead }, async ({ port }) => {
    const leaves = await open(port);
    leaves.send(part.toString(), { fin: false });
    await eventually('a part has gone ahead', () => ahead.held === 1);
    leaves.terminate();
    await eventually('it is forgotten', () => ahead.held === 0);
    const { moved } = ahead;
    const wrong = await open(port);
    wrong.send(part);
    assert.equal((await once(wrong, 'close'))[0], 1003);
    assert.deepEqual([ahead.moved > moved, ahead.held], [true, 0]);
  });
});

test('a body whose client leaves is forgotten', () => {
  const ahead = new KeptAhead();
  return withFront({ ahead }, async ({ port }) => {
    const socket = await rawConnect(port);
    socket.write('POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n');
    socket.write(part);
    await eventually('a part has gone ahead', () => ahead.held === 1);
    socket.destroy();
    await eventually('it is forgotten', () => ahead.held === 0);
  });
});
