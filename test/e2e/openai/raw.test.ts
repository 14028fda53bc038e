/**
 * The HTTP door spoken to byte by byte, as no library would: each exchange is answered by the book or cut, soon, never with 500, and
 * beside all of it a good client is served.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually, inTime } from '../../helpers/eventually.js';
import { rawConnect, readReply } from '../../helpers/wire/raw-http.js';

let at: TestDaemon;
let port: number;
let bystanding = true;
let bystander: Promise<number>;

before(async () => {
  at = await startTestDaemon(['server.max_message_bytes=65536']);
  port = Number(new URL(at.http).port);
  bystander = serveGoodClient();
});
after(() => at.close());

/** One good request after the other until the end; resolves with how many were answered. */
async function serveGoodClient(): Promise<number> {
  let served = 0;
  for (; bystanding; served++) {
    const response = await fetch(`${at.http}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'Once', max_tokens: 2, temperature: 0 }),
    });
    assert.equal(response.status, 200);
    await response.text();
    await sleep(20);
  }
  return served;
}

/** The status of the first reply to these bytes; 0 when the connection was cut without one. */
async function statusOf(bytes: string): Promise<number> {
  const socket = rawConnect(port);
  socket.write(bytes, 'latin1');
  try {
    return (await inTime(JSON.stringify(bytes.slice(0, 60)), readReply(socket))).status;
  } finally {
    socket.destroy();
  }
}

const good = '{"prompt":"Once","max_tokens":1}';
const head = (path: string, ...lines: string[]): string => [`POST ${path} HTTP/1.1`, 'Host: 127.0.0.1', ...lines].join('\r\n');
const whole = (path: string, body: string, ...lines: string[]): string =>
  `${head(path, ...(lines.length > 0 ? lines : ['Content-Type: application/json']), `Content-Length: ${body.length}`)}\r\n\r\n${body}`;
const json = 'Content-Type: application/json';
const text = (path: string, body: object): string => whole(path, JSON.stringify(body));

/** What is sent, and the answers that are right. */
type Exchange = readonly [name: string, bytes: string, ...right: number[]];

const completions = '/v1/completions';
const chat = '/v1/chat/completions';
const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`;

const bodies: readonly Exchange[] = [
  ...['', '{', '[]', 'null', '1', '"x"', 'true', '{"prompt":', deep, '{"prompt":"a"}{"prompt":"b"}', '\u00ff\u00fe', '\0'].map(
    (body): Exchange => [`a body of ${JSON.stringify(body.slice(0, 20))}`, whole(completions, body), 400],
  ),
  ...[null, true, 1.5, {}, [], [[]], [1.5], [-1], [2 ** 40], ['a', 1], '\ud800'].map(
    (prompt): Exchange => [`prompt ${JSON.stringify(prompt)}`, text(completions, { prompt, max_tokens: 1 }), 400, 200],
  ),
  ...[null, {}, 'hi', [], [1], [{}], [{ role: 'user' }], [{ role: 1, content: 'x' }], [{ role: 'user', content: { a: 1 } }]].map(
    (messages): Exchange => [`messages ${JSON.stringify(messages)}`, text(chat, { messages, max_tokens: 1 }), 400],
  ),
  ...Object.entries({
    max_tokens: [-1, 1.5, '5', 1e9, null],
    temperature: [-0.1, 'hot', 1e308],
    top_p: [0, 1.1, []],
    top_k: [0.5, -3],
    n: [0, 1e6, '2'],
    best_of: [0, 999],
    logprobs: [-1, 21, 'yes'],
    stop: [[''], [1], 'x'.repeat(2000), Array(500).fill('s')],
    logit_bias: [{ a: 1 }, { '-1': 1 }, { 1: 1000 }, []],
    seed: [1.5, 'x', 1e300],
    stream: [1, 'true', { token: 3 }],
    stream_options: [1, { include_usage: 'x' }],
    echo: ['yes'],
    suffix: ['x'],
    user: [5],
    model: ['', 'other', 7],
  }).flatMap(([name, values]) =>
    values.map((value): Exchange => {
      const shown = `${name} ${JSON.stringify(value).slice(0, 30)}`;
      return [shown, text(completions, { prompt: 'a', max_tokens: 1, [name]: value }), 400, 404, ...(value === null ? [200] : [])];
    }),
  ),
  ...[null, true, 1.5, {}, [], [[]], [1.5], [-1], [2 ** 40], ['a', 1], '', [''], [[5], 'a'], '\ud800'].map(
    (input): Exchange => [`input ${JSON.stringify(input)}`, text('/v1/embeddings', { input }), 400, ...(input === '\ud800' ? [200] : [])],
  ),
  ...Object.entries({
    dimensions: [0, -1, 1.5, '5', 1e9, {}],
    encoding_format: ['int8', 1, {}, []],
    truncate_prompt_tokens: [0, 1.5, 1e12],
    priority: [1e12, 'x'],
    model: ['', 'other', 7],
  }).flatMap(([name, values]) =>
    values.map((value): Exchange => {
      const shown = `embeddings with ${name} ${JSON.stringify(value)}`;
      return [shown, text('/v1/embeddings', { input: 'a', [name]: value }), value === 'other' ? 404 : 400];
    }),
  ),
  ['a prompt of 70 kB', text(completions, { prompt: 'a'.repeat(70_000) }), 413],
  ['a prompt longer than the context', text(completions, { prompt: 'word '.repeat(6000) }), 400],
  ['a member named __proto__', whole(completions, '{"__proto__":{"prompt":"x"}}'), 400],
  ['the same member twice', whole(completions, '{"prompt":"a","prompt":"b","max_tokens":1}'), 200],
];

const framings: readonly Exchange[] = [
  ['no type', `${head(completions, `Content-Length: ${good.length}`)}\r\n\r\n${good}`, 415],
  ...[
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json; charset=latin1',
    'json',
    ';',
  ].map((type): Exchange => [`type ${type}`, whole(completions, good, `Content-Type: ${type}`), 415]),
  ['type in capitals', whole(completions, good, 'Content-Type: APPLICATION/JSON; Charset=UTF-8'), 200],
  [
    'chunks',
    `${head(completions, json, 'Transfer-Encoding: chunked')}\r\n\r\n${good.length.toString(16)};x=y\r\n${good}\r\n0\r\n\r\n`,
    200,
  ],
  [
    'chunks with trailers',
    `${head(completions, json, 'Transfer-Encoding: chunked')}\r\n\r\n${good.length.toString(16)}\r\n${good}\r\n0\r\nX: y\r\n\r\n`,
    200,
  ],
  [
    'a chunk length that is no number',
    `${head(completions, json, 'Transfer-Encoding: chunked')}\r\n\r\nzz\r\n${good}\r\n0\r\n\r\n`,
    400,
    0,
  ],
  ['a chunk length beyond all', `${head(completions, json, 'Transfer-Encoding: chunked')}\r\n\r\nffffffffffffffffff\r\n`, 400, 413, 0],
  ['length and chunks', `${head(completions, json, 'Content-Length: 5', 'Transfer-Encoding: chunked')}\r\n\r\n0\r\n\r\n`, 400, 0],
  ['chunks behind a space', `${head(completions, json, 'Transfer-Encoding : chunked')}\r\n\r\n0\r\n\r\n`, 400, 0],
  ['an encoding that nobody knows', `${head(completions, json, 'Transfer-Encoding: xchunked')}\r\n\r\n0\r\n\r\n`, 400, 0],
  ['two lengths', `${head(completions, json, `Content-Length: ${good.length}`, 'Content-Length: 3')}\r\n\r\n${good}`, 400, 0],
  ...['-1', '+5', '0x10', '1e3', '9'.repeat(30), 'abc', '5 5'].map(
    (length): Exchange => [`a length of ${length}`, `${head(completions, json, `Content-Length: ${length}`)}\r\n\r\n${good}`, 400, 413, 0],
  ),
  ['an announced body of a gigabyte', `${head(completions, json, 'Content-Length: 1073741824')}\r\n\r\n{`, 413],
  ['an expectation', `${head(completions, json, `Content-Length: ${good.length}`, 'Expect: 100-continue')}\r\n\r\n${good}`, 100, 200],
  [
    'an expectation that nobody knows',
    `${head(completions, json, `Content-Length: ${good.length}`, 'Expect: magic')}\r\n\r\n${good}`,
    417,
    200,
  ],
  ['bare line feeds', `POST ${completions} HTTP/1.1\nHost: 127.0.0.1\n\n`, 400, 411, 415, 0],
  ['a header without a colon', `${head('/v1/models', 'Nonsense')}\r\n\r\n`, 400],
  ['a folded header', `${head('/v1/models', 'X: a\r\n b')}\r\n\r\n`, 400],
  ['a null byte in a header', `${head('/v1/models', 'X: a\0b')}\r\n\r\n`, 400],
  ['a header of 100 kB', `${head('/v1/models', `X: ${'a'.repeat(100_000)}`)}\r\n\r\n`, 431, 0],
  ['3,000 headers', `${head('/v1/models', ...Array.from({ length: 3000 }, (_, i) => `X${i}: a`))}\r\n\r\n`, 431, 405, 0],
  ['HTTP/2 by knowledge', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 0],
  ['HTTP/0.9', 'GET /v1/models\r\n\r\n', 400, 0],
  ['HTTP/1.0', 'GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n', 200],
  ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 0],
  ['nonsense', `${'\x00\xff'.repeat(200)}\r\n\r\n`, 400, 0],
];

const get = (target: string, ...lines: string[]): string => [`GET ${target} HTTP/1.1`, 'Host: 127.0.0.1', ...lines, '', ''].join('\r\n');
const places: readonly Exchange[] = [
  ['a model by its name', get('/v1/models/demo'), 200],
  ['a model by an escaped name', get('/v1/models/%64emo'), 200],
  ...[
    '/v1/models/',
    '/v1/models/a/b',
    '/v1/models/a%2Fb',
    '/v1/models/%00',
    '/v1',
    '/v1/',
    '//v1/models',
    '/V1/models',
    '/v1/models/..',
  ].map((path): Exchange => [`GET ${path}`, get(path), 404]),
  ['an escape that is none', get('/v1/models/%zz'), 400],
  ['half an escape', get('/v1/models/%'), 400],
  ['an escape that is no UTF-8', get('/v1/models/%ff'), 400],
  ['a path of 20 kB', get(`/v1/models/${'a'.repeat(20_000)}`), 404, 431, 0],
  ['a path that climbs', get('/v1/../etc/passwd'), 404],
  ['an absolute target', get('http://evil.example/v1/models'), 404, 400, 403],
  ['a query', get('/v1/models?x=%zz&y'), 200],
  ['no target', 'GET  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 400, 0],
  ...['PUT', 'DELETE', 'PATCH', 'TRACE'].map(
    (verb): Exchange => [verb, `${verb} /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`, 405, 404],
  ),
  ['a verb of our own', 'BREW /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 400, 405, 0],
  ['a verb in small letters', 'get /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 400, 405, 0],
  ['CONNECT', 'CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 400, 404, 405, 0],
  ['HEAD', 'HEAD /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n', 200],
  ['GET where POST is', get(completions), 405],
  ['no Host', 'GET /v1/models HTTP/1.1\r\n\r\n', 400, 403, 421],
  ['two Hosts', get('/v1/models', 'Host: evil.example'), 400, 403, 421],
  ...['evil.example', '127.0.0.1.evil.example', 'localhost@evil.example', '127.0.0.1:x', '[::1', ''].map(
    (host): Exchange => [`Host ${JSON.stringify(host)}`, `GET /v1/models HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 400, 403, 421],
  ),
  ...['https://evil.example', 'null', 'file://', 'http://127.0.0.1.evil.example'].map(
    (origin): Exchange => [`Origin ${origin}`, get('/v1/models', `Origin: ${origin}`), 403],
  ),
];

for (const [what, table] of Object.entries({ bodies, framings, places })) {
  describe(`${table.length} raw exchanges: ${what}`, () => {
    for (const [name, bytes, ...right] of table) {
      test(name, async () => {
        const status = await statusOf(bytes);
        assert.ok(right.includes(status), `${status}, and not ${right.join(' or ')}`);
      });
    }
  });
}

test('a client that closes its half after the request is answered, streamed and whole', async () => {
  for (const stream of [false, true]) {
    const socket = rawConnect(port);
    let got = '';
    socket.on('data', (part: Buffer) => {
      got += part.toString('latin1');
    });
    socket.end(text(completions, { prompt: 'Once', max_tokens: 5, temperature: 0, stream }));
    await inTime('the answer', new Promise((resolve) => socket.once('close', resolve)));
    assert.match(got, stream ? /data: \[DONE\]/ : /"finish_reason":"length"/);
  }
});

test('requests behind each other in one packet are answered in their order', async () => {
  const socket = rawConnect(port);
  let got = '';
  socket.on('data', (part: Buffer) => {
    got += part.toString('latin1');
  });
  const stream = text(completions, { prompt: 'Once', max_tokens: 3, temperature: 0, stream: true });
  socket.write(stream + get('/v1/models') + text(completions, { prompt: 5 }) + get('/ping', 'Connection: close'));
  await inTime('all four', new Promise((resolve) => socket.once('close', resolve)));
  const marks = ['data: [DONE]', '"object":"list"', '"param":"prompt"', '{"status":"ok"}'].map((mark) => got.indexOf(mark));
  assert.ok(
    marks.every((place, i) => place > (marks[i - 1] ?? -1)),
    `${marks}`,
  );
});

test('the good client was served all the time, and nothing is held', async () => {
  bystanding = false;
  assert.ok((await bystander) > 10);
  await at.untilFreed();
});

test('a client that leaves while its whole answer is made has it ended', async () => {
  for (const leave of ['end', 'destroy'] as const) {
    const socket = rawConnect(port);
    socket.write(text(completions, { prompt: 'Once', max_tokens: 4000, ignore_eos: true }));
    await eventually('it runs', async () => ((await at.stats()).requests?.running ?? 0) > 0);
    // Ended alone it would be answered, as above; a process that is gone reads nothing more either.
    if (leave === 'end') socket.end();
    socket.destroy();
    await at.untilFreed();
  }
});
