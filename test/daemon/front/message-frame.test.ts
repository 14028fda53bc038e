import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { messageFrame } from '../../../daemon/front/message-frame.js';
import { handshakeAnswer } from './handshake.js';

/** Around every change of the length field, and characters of one to four bytes. */
const texts = [
  '',
  'a',
  'é€🦊',
  'x'.repeat(125),
  'x'.repeat(126),
  'ü'.repeat(63),
  'x'.repeat(65_535),
  'x'.repeat(65_536),
  '🦊'.repeat(20_000),
];

test('a WebSocket client reads text and binary messages of every length as they were', async () => {
  const messages: (string | Uint8Array)[] = [...texts, ...texts.map((text) => Buffer.from(text))];
  const server = createServer((socket) => {
    socket.once('data', (request) => {
      socket.write(handshakeAnswer(request.toString('latin1')));
      for (const message of messages) socket.write(messageFrame(message));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const got: (string | Buffer)[] = [];
  await new Promise<void>((resolve, reject) => {
    client.on('error', reject);
    client.on('message', (data: Buffer, isBinary) => {
      got.push(isBinary ? Buffer.from(data) : data.toString('utf8'));
      if (got.length === messages.length) resolve();
    });
  });
  assert.deepEqual(got, messages);
  client.terminate();
  server.close();
});
