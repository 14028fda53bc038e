/**
 * Hostile input against a daemon with a real engine in a process of its own: requests for far too much work, or far too many of them. While
 * each attack runs, a bystander asks one question after the other and gets every answer right and in time, and the daemon's event loop
 * keeps turning; afterwards nothing of the attack is left.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { rawConnect } from '../../helpers/wire/raw-http.js';
import { bomb, chat, startAttacked } from './attacked.js';
import type { AttackedDaemon } from './target.js';

/** Of four million characters, in the 64 MiB that wait to be encoded at most. */
const MAX_HELD_TEXTS = 16;

let at: AttackedDaemon;
before(async () => {
  at = await startAttacked();
});
after(() => at.close());

/** As much work as one message that is within all limits can make. */
const heavy: readonly (readonly [what: string, method: string, params: () => object, codes: readonly (number | undefined)[]])[] = [
  ['a prompt of half a million token ids', 'completions.create', () => ({ prompt: new Array(520_000).fill(1) }), [-32006]],
  ['a prompt of half a million numbers that are no ids', 'completions.create', () => ({ prompt: new Array(520_000).fill(-1) }), [-32602]],
  ['an object of 32,000 members', 'chat.completions.create', () => chat('x', { logit_bias: manyMembers(32_000) }), [-32602]],
  ['32,000 members named by falling numbers', 'ping', () => fallingNumbers(32_000), [undefined]],
  ['half a million values beside a name to drop', 'ping', () => ({ x: new Array(520_000).fill(0), y: '\\u005f' }), [-32602]],
  ['a megabyte of words', 'completions.create', () => ({ prompt: 'one two '.repeat(125_000) }), [-32006]],
  ['four megabytes of escapes', 'ping', () => ({ x: '\u0001'.repeat(690_000) }), [undefined]],
  [
    'a chat of 4,000 messages',
    'chat.completions.create',
    () => ({ messages: new Array(4000).fill({ role: 'user', content: 'x' }) }),
    [-32006],
  ],
  ['100 tools of 300 members each', 'chat.completions.create', () => chat('x', { tools: manyTools(100, 300) }), [-32006]],
  ['half a million ids to decode', 'detokenize', () => ({ ids: new Array(520_000).fill(5) }), [undefined]],
];
function fallingNumbers(count: number): object {
  return Object.fromEntries(Array.from({ length: count }, (_, k) => [`${9e8 - k * 7919}`, k]));
}
function manyMembers(count: number, prefix = 'k'): object {
  return Object.fromEntries(Array.from({ length: count }, (_, k) => [`${prefix}${k}`, 1]));
}
function manyTools(count: number, members: number): readonly object[] {
  const parameters = { type: 'object', properties: manyMembers(members) };
  return Array.from({ length: count }, (_, k) => ({ type: 'function', function: { name: `f${k}`, parameters } }));
}
for (const [k, [what, method, params, codes]] of heavy.entries()) {
  test(`${what}: one answer, and others are served`, (t) =>
    at.beside(t, async (open) => {
      const socket = await open(k % 2 === 0 ? 'jsonrpc' : 'jsonrpc.msgpack');
      const reply = await socket.reply(socket.send(method, params()));
      assert.ok(codes.includes(reply.error?.code), JSON.stringify(reply).slice(0, 300));
    }));
}

test('long prompts, more than there are threads to encode them, hold up no short one', (t) =>
  at.beside(t, async (open) => {
    const socket = await open();
    const text = 'a'.repeat(100_000);
    const ids = Array.from({ length: 6 }, () => socket.send('completions.create', { prompt: text, max_tokens: 1 }));
    for (const id of ids) assert.equal((await socket.reply(id)).error?.code, -32006);
  }));

/** A prompt that takes some tens of milliseconds: nobody would call it long. */
const ordinary = 'one two three '.repeat(2600);
/** It is answered while `attack` goes on, far sooner than all of the attack could be. */
async function servedOrdinary(): Promise<void> {
  const socket = await at.open();
  const params = { prompt: ordinary, max_tokens: 1, truncate_prompt_tokens: 16 };
  const [ids] = await Promise.all([socket.call('tokenize', { text: ordinary }), socket.call('completions.create', params)]);
  assert.ok(Number(ids['count']) > 5000);
  await socket.close();
}

test('long texts of clients that have left are not encoded: an ordinary prompt is', (t) =>
  at.beside(t, async (open) => {
    const text = '1'.repeat(2_000_000);
    for (let client = 0; client < 3; client++) {
      const socket = await open();
      for (let i = 0; i < 10; i++) socket.send('tokenize', { text });
      while (socket.ws.bufferedAmount > 0) await sleep(5);
      socket.ws.terminate();
    }
    await servedOrdinary();
  }));

test('long texts of clients that stay hold up no ordinary prompt, and more of them than may be held are refused', (t) =>
  at.beside(t, async (open) => {
    const text = '1'.repeat(4_000_000);
    const sockets = await Promise.all([open(), open(), open()]);
    const codes: (number | undefined)[] = [];
    // Encoded whole, and answered with so little that the end of one is known as soon as it has made room.
    const params = { prompt: text, max_tokens: 1, truncate_prompt_tokens: 16 };
    for (const socket of sockets)
      for (let i = 0; i < 8; i++)
        void socket.reply(socket.send('completions.create', params)).then(
          ({ error }) => codes.push(error?.code),
          () => {},
        );
    await servedOrdinary();
    // Behind all texts of its connection, so that each of them has found room or has not.
    for (const socket of sockets) await socket.call('ping');
    await sleep(100); // the answers of those that just made room are on their way
    const refused = codes.filter((code) => code === -32005).length;
    const ended = codes.length - refused;
    assert.ok(refused >= 3 * 8 - MAX_HELD_TEXTS - ended, `${refused} were refused, and ${ended} had ended`);
  }));

test('pipelined posts, more than a connection may have, hold up no ordinary prompt', (t) =>
  at.beside(t, async () => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tokenize', params: { text: '1'.repeat(50_000) } });
    const post = `POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    const socket = rawConnect(at.port);
    for (let i = 0; i < 600; i++) socket.write(post);
    await once(socket, 'data');
    await servedOrdinary();
    socket.destroy();
  }));

test('chat templates that do not end are stopped, more of them than there are tokenizers, and others are served meanwhile', (t) =>
  at.beside(t, async (open) => {
    const socket = await open();
    const ids = Array.from({ length: 4 }, () => socket.send('chat.completions.create', chat(bomb)));
    assert.ok(await socket.call('chat.completions.create', chat('Hello.')), 'the same client is served beside them');
    for (const id of ids) assert.match((await socket.reply(id)).error?.message ?? '', /chat template was stopped/);
  }));

test('a flood of requests on one connection: each is answered once, those over the limit with -32010', (t) =>
  at.beside(
    t,
    async (open) => {
      const socket = await open();
      const ids = Array.from({ length: 1500 }, (_, i) =>
        socket.send('chat.completions.create', chat('Hello.', { max_tokens: 1 }), `f${i}`),
      );
      const codes = new Map<number, number>();
      for (const id of ids) {
        const code = (await socket.reply(id)).error?.code ?? 0;
        codes.set(code, (codes.get(code) ?? 0) + 1);
      }
      assert.deepEqual(
        [...codes.keys()].filter((c) => ![0, -32010, -32005].includes(c)),
        [],
      );
      await socket.call('ping');
      assert.equal(socket.log.filter((m) => m.id !== undefined && m.method === undefined).length, ids.length + 1);
    },
    // Its queue is passed by, clients take turns; but the engine's time is shared with as many requests as run at once.
    { costly: true },
  ));
