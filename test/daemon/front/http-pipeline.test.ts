/** Requests that a connection sends before the last one is answered, over real sockets. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { Pipelines } from '../../../daemon/front/http-pipeline.js';
import { eventually } from '../../helpers/eventually.js';
import { rawConnect } from '../../helpers/wire/raw-http.js';

async function serve(limit: number) {
  const pipelines = new Pipelines(limit);
  const taken: { readonly path: string; readonly response: ServerResponse; closed: number }[] = [];
  const refused: string[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    if (!pipelines.add(request, response)) {
      refused.push(path);
      response.writeHead(429).end();
      return;
    }
    const one = { path, response, closed: 0 };
    taken.push(one);
    response.once('close', () => one.closed++);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = rawConnect((server.address() as AddressInfo).port);
  return {
    taken,
    refused,
    client,
    ask: (path: string) => client.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`),
    close: () => {
      client.destroy();
      server.close();
    },
  };
}

test('so many requests of a connection are taken before the first is answered, and each answer makes room for another', async () => {
  const { taken, refused, client, ask, close } = await serve(2);
  let heard = '';
  client.on('data', (part: Buffer) => {
    heard += part.toString('latin1');
  });
  for (const path of ['/a', '/b', '/c']) ask(path);
  await eventually('all have arrived', () => taken.length + refused.length === 3);
  assert.deepEqual([taken.map((one) => one.path), refused], [['/a', '/b'], ['/c']]);
  for (const { response } of taken) response.end('done');
  await eventually('all are answered', () => heard.includes('429'));
  ask('/d');
  await eventually('the next is taken', () => taken.length === 3);
  assert.deepEqual(
    taken.map((one) => one.closed),
    [1, 1, 0],
  );
  close();
});

test('when the connection closes each request hears of it once, not only the one whose turn it is', async () => {
  const { taken, client, ask, close } = await serve(10);
  for (const path of ['/a', '/b', '/c']) ask(path);
  await eventually('all have arrived', () => taken.length === 3);
  client.destroy();
  await eventually('all have heard', () => taken.every((one) => one.closed === 1));
  assert.ok(taken.every(({ response }) => response.destroyed));
  close();
});
