/** Messages of megabytes, which are decoded in a thread of their own, against a daemon with a real engine: the answers are those of any message. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { packMessage, unpackMessage } from '../../../actors/messages/codec.js';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';

const MESSAGE_LIMIT = 12_000_000;
let at: TestDaemon;
before(async () => {
  at = await startTestDaemon([`server.max_message_bytes=${MESSAGE_LIMIT}`]);
});
after(() => at.close());

const TOO_LONG = -32006;
const prompts = { letters: 'a'.repeat(3_000_000), spaces: ' '.repeat(3_000_000), zeroWidth: '\u200b'.repeat(1_500_000) };
const call = (id: number, prompt: unknown, more: object = {}) => ({
  jsonrpc: '2.0',
  id,
  method: 'completions.create',
  params: { prompt, max_tokens: 2, ...more },
});

async function open(protocol: string): Promise<WebSocket> {
  const ws = new WebSocket(at.ws, protocol);
  ws.on('error', () => {});
  await once(ws, 'open');
  return ws;
}

type Answer = { readonly id: number; readonly error?: { readonly code: number; readonly message: string }; readonly result?: object };

/** The next `count` answers. */
async function answers(ws: WebSocket, count: number): Promise<Answer[]> {
  const all: Answer[] = [];
  const take = (data: Buffer, isBinary: boolean): void => {
    all.push((isBinary ? unpackMessage(data) : JSON.parse(data.toString())) as Answer);
  };
  ws.on('message', take);
  await eventually(`${count} answers`, () => all.length >= count);
  ws.off('message', take);
  return all;
}

for (const [kind, prompt] of Object.entries(prompts)) {
  test(`a prompt of ${kind} that is far too long gets one error, by every door, as a text and in a chat`, async () => {
    const json = await open('jsonrpc');
    json.send(JSON.stringify(call(1, prompt)));
    assert.deepEqual(
      (await answers(json, 1)).map(({ id, error }) => [id, error?.code]),
      [[1, TOO_LONG]],
    );
    json.close();
    const packed = await open('jsonrpc.msgpack');
    packed.send(packMessage(call(2, [prompt])));
    assert.deepEqual(
      (await answers(packed, 1)).map(({ id, error }) => [id, error?.code]),
      [[2, TOO_LONG]],
    );
    packed.close();
    const headers = { 'content-type': 'application/json' };
    const messages = [{ role: 'user', content: `${prompt}.${prompt}` }];
    for (const [path, body] of [
      ['/v1/completions', { prompt, max_tokens: 2 }],
      ['/v1/chat/completions', { messages, max_tokens: 2 }],
    ] as const) {
      const reply = await fetch(`${at.http}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /context_length_exceeded/);
    }
    const posted = await fetch(at.http, { method: 'POST', headers, body: JSON.stringify(call(3, prompt)) });
    assert.equal(((await posted.json()) as Answer).error?.code, TOO_LONG);
  });
}

const NOT_AT_ONCE = -32602;
const unencodable = { letters: 'a'.repeat(5_000_000), spaces: ' '.repeat(5_000_000), zeroWidth: '\u200b'.repeat(1_500_000) };
const saysWhy = /takes at most 4194304 bytes of text at once/;
for (const [kind, text] of Object.entries(unencodable)) {
  test(`${kind} that the tokenizer cannot take at once get its error from tokenize, by every door, as a text and in a chat`, async () => {
    const messages = [{ role: 'user', content: `a${text}b` }];
    const json = await open('jsonrpc');
    const packed = await open('jsonrpc.msgpack');
    for (const params of [{ text }, { text: `Well then: ${text} again` }, { messages }]) {
      const message = { jsonrpc: '2.0', id: 1, method: 'tokenize', params };
      json.send(JSON.stringify(message));
      packed.send(packMessage(message));
      for (const ws of [json, packed]) {
        const [answer] = await answers(ws, 1);
        assert.equal(answer?.error?.code, NOT_AT_ONCE);
        assert.match(answer?.error?.message ?? '', saysWhy);
      }
    }
    json.close();
    packed.close();
    for (const [path, body] of [
      ['/tokenize', { prompt: text }],
      ['/v1/messages/count_tokens', { model: 'demo', messages }],
    ] as const) {
      const reply = await fetch(`${at.http}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), saysWhy);
    }
  });
}

test('a refused text is answered behind what is wrong besides, and beside the other members of its batch', async () => {
  const ws = await open('jsonrpc');
  const text = unencodable.letters;
  const calls = [{ text, model: 'none' }, { text }, { text: 'one' }];
  ws.send(JSON.stringify(calls.map((params, id) => ({ jsonrpc: '2.0', id, method: 'tokenize', params }))));
  const [batch] = (await answers(ws, 1)) as unknown as [Answer[]];
  assert.deepEqual(
    batch.map(({ error }) => [error?.code, saysWhy.test(error?.message ?? '')]),
    [
      [-32002, false],
      [NOT_AT_ONCE, true],
      [undefined, false],
    ],
  );
  ws.close();
});

test('a long text with places to cut is tokenized whole', async () => {
  const ws = await open('jsonrpc');
  const words = 1_000_000;
  ws.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tokenize', params: { text: ' one'.repeat(words), add_special_tokens: false } }));
  const [answer] = (await answers(ws, 1)) as unknown as [{ readonly result: { readonly count: number } }];
  assert.equal(answer.result.count, words);
  ws.close();
});

test('what a template trims or `truncate_prompt_tokens` leaves is answered, however long it was', async () => {
  const ws = await open('jsonrpc');
  const short = call(1, 'Once upon a time', { seed: 1, temperature: 0 });
  const padded = call(2, `${prompts.letters} Once upon a time`, { seed: 1, temperature: 0, truncate_prompt_tokens: 4 });
  ws.send(JSON.stringify(short));
  await answers(ws, 1);
  ws.send(JSON.stringify(padded));
  const [answer] = await answers(ws, 1);
  assert.ok(answer?.result !== undefined, JSON.stringify(answer?.error));
  ws.close();
});

test('messages of a connection begin in their order: small ones wait behind a large one', async () => {
  const ws = await open('jsonrpc');
  ws.send(JSON.stringify(call(1, prompts.letters)));
  for (let id = 2; id < 6; id++) ws.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'ping' }));
  ws.send(JSON.stringify(call(6, prompts.zeroWidth)));
  const all = await answers(ws, 6);
  assert.deepEqual(all.map(({ id }) => id).sort(), [1, 2, 3, 4, 5, 6]);
  assert.ok(all.findIndex(({ id }) => id === 6) > all.findIndex(({ id }) => id === 2));
  ws.close();
});

test('a large text that is not UTF-8 closes with 1007, one over the limit with 1009', async () => {
  const bad = await open('jsonrpc');
  bad.send(Buffer.concat([Buffer.from(`"${prompts.letters}`), Buffer.from([0xc3, 0x28])]), { binary: false });
  assert.equal((await once(bad, 'close'))[0], 1007);
  const large = await open('jsonrpc');
  large.send('x'.repeat(MESSAGE_LIMIT + 1));
  assert.equal((await once(large, 'close'))[0], 1009);
});

test('clients that leave in the middle of a large message, or while it is decoded, leave nothing behind', async () => {
  const socket = await at.open();
  const text = JSON.stringify(call(1, prompts.zeroWidth));
  for (let i = 0; i < 4; i++) {
    const ws = await open('jsonrpc');
    ws.send(text.slice(0, 2_000_000 >> (i % 2)), { fin: false });
    if (i % 2 === 0) ws.send(text.slice(2_000_000));
    await eventually('it has left', () => ws.bufferedAmount === 0);
    ws.terminate();
  }
  await at.untilFreed();
  assert.ok(await socket.call('ping'));
  await socket.close();
});

test('a large message is answered as ever behind two that ended in the middle, over WebSocket and HTTP', async () => {
  const gone = await open('jsonrpc');
  const text = JSON.stringify(call(1, 'a'.repeat(3_000_000)));
  gone.send(text.slice(0, 2_000_000), { fin: false });
  const http = new AbortController();
  const part = new Blob([text.slice(0, 2_000_000)]).stream();
  const endless = new ReadableStream({
    async start(body) {
      for await (const piece of part) body.enqueue(piece);
    },
  });
  const headers = { 'content-type': 'application/json' };
  const asked = fetch(at.http, { method: 'POST', headers, body: endless, duplex: 'half', signal: http.signal } as RequestInit);
  const failed = assert.rejects(asked);
  await new Promise((resolve) => setTimeout(resolve, 200));
  http.abort();
  gone.terminate();
  await failed;
  const json = await open('jsonrpc');
  json.send(text);
  assert.deepEqual(
    (await answers(json, 1)).map(({ id, error }) => [id, error?.code]),
    [[1, TOO_LONG]],
  );
  json.close();
});
