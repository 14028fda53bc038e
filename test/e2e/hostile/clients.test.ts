/**
 * Hostile input against a daemon with a real engine in a process of its own: clients that hold connections, read nothing or leave in the
 * middle. While each attack runs, a bystander asks one question after the other and gets every answer right and in time, and the daemon's
 * event loop keeps turning; afterwards nothing of the attack is left.
 */
import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { eventually, inTime } from '../../helpers/eventually.js';
import { rawConnect, rawRequest, upgradeLines } from '../../helpers/wire/raw-http.js';
import type { RpcSocket } from '../../helpers/wire/rpc-socket.js';
import { chat, MAX_CONNECTIONS, startAttacked } from './attacked.js';
import { AttackedDaemon } from './target.js';

let at: AttackedDaemon;
before(async () => {
  at = await startAttacked();
});
after(() => at.close());

test('connections over the limit are refused; those that are open, and new ones after a close, work', (t) =>
  at.beside(t, async (open) => {
    const free = MAX_CONNECTIONS - AttackedDaemon.ownConnections;
    const held: RpcSocket[] = [];
    await eventually('all places are taken', async () => {
      const more = await Promise.allSettled(Array.from({ length: 20 }, () => open()));
      held.push(...more.flatMap((s) => (s.status === 'fulfilled' ? [s.value] : [])));
      return held.length === free;
    });
    await assert.rejects(open(), /503/);
    for (const socket of held) assert.ok(await socket.call('ping'));
    await held[0]?.close();
    const again = await open();
    assert.ok(await again.call('ping'));
    await Promise.all([again, ...held].map((socket) => socket.close()));
  }));

test('connections that send a request byte by byte, or nothing, keep nobody out', (t) =>
  at.beside(t, async () => {
    const { port } = at;
    const slow = Array.from({ length: 60 }, (_, i) => {
      const socket = rawConnect(port);
      socket.write(
        i % 2 === 0
          ? 'POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n'
          : 'GET / HT',
      );
      return socket;
    });
    for (let i = 0; i < 20; i++) {
      for (const socket of slow) socket.write('[');
      await sleep(20);
    }
    assert.equal((await rawRequest(port, ['GET /health HTTP/1.1', 'Host: localhost'])).status, 200);
    for (const socket of slow) socket.destroy();
  }));

test('a flood of pings whose answers are not read, and one of connections that come and go, harm nobody', (t) =>
  at.beside(t, async (open) => {
    const deaf = await open();
    deaf.ws.pause();
    for (let i = 0; i < 20_000 && deaf.ws.readyState === WebSocket.OPEN; i++) deaf.ws.ping('p'.repeat(125));
    const { port } = at;
    for (let round = 0; round < 10; round++) {
      const sockets = Array.from({ length: 30 }, () => rawConnect(port));
      for (const socket of sockets) socket.write(`${upgradeLines('/', ['Host: localhost']).join('\r\n')}\r\n\r\n`);
      await sleep(10);
      for (const socket of sockets) socket.resetAndDestroy();
    }
  }));

test('readers that stall in the middle of long answers hold up nobody', (t) =>
  at.beside(t, async (open) => {
    const params = { ...chat('Tell me a story.'), max_tokens: 400, ignore_eos: true, logprobs: true, top_logprobs: 20, stream: true };
    for (let i = 0; i < 4; i++) {
      const socket = await open();
      socket.send('chat.completions.create', { ...params, n: 4, temperature: 1 });
      await socket.until((m) => m.method === '$/progress');
      socket.ws.pause();
    }
    await sleep(500);
  }));

const manyLogprobs = (count: number, length: number) => ({
  prompt: Array.from({ length: count }, (_, i) => Array.from({ length }, (_, k) => 5 + ((i * 31 + k * 7) % 1000))),
  max_tokens: 1,
  logprobs: 20,
  prompt_logprobs: 20,
  echo: true,
});

test('three answers of 130,000 log-probabilities at once are written whole, and the event loop turns', (t) =>
  at.beside(
    t,
    async (open) => {
      const sockets = [await open(), await open('jsonrpc.msgpack'), await open()];
      const replies = await Promise.all(sockets.map((socket) => socket.reply(socket.send('completions.create', manyLogprobs(8, 400)))));
      for (const { result } of replies) {
        const choices = result?.choices as readonly { logprobs?: { tokens: unknown[] }; prompt_logprobs?: unknown[] }[];
        assert.deepEqual(
          choices.map((choice) => [choice.logprobs?.tokens.length, choice.prompt_logprobs?.length]),
          new Array(8).fill([401, 400]),
        );
      }
    },
    // The engine computes 9,600 tokens.
    { costly: true },
  ));

test('answers of millions of log-probabilities are refused at once', (t) =>
  at.beside(t, async (open) => {
    const sockets = await Promise.all([open(), open(), open()]);
    for (const socket of sockets) {
      const { error } = await socket.reply(socket.send('completions.create', manyLogprobs(250, 400)));
      assert.equal(error?.code, -32602);
      assert.match(error.message, /4205250 log-probabilities .*validation\.max_reported_logprobs/);
    }
  }));

test('clients that leave in the middle of a large answer, or take none of it, leave nothing behind', (t) =>
  at.beside(
    t,
    async (open) => {
      const [leaving, deaf] = [await open(), await open()];
      for (const socket of [leaving, deaf]) socket.send('completions.create', manyLogprobs(2, 400));
      const first = new Promise((resolve) => (leaving.ws as unknown as { _socket: Socket })._socket.once('data', resolve));
      deaf.ws.pause();
      await inTime('the answer begins', first);
      leaving.ws.terminate();
    },
    { costly: true },
  ));
