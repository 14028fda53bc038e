/** The HTTP front over real sockets: methods, bodies, limits, slow and broken senders, CORS. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { test } from 'node:test';
import { eventually, inTime } from '../../helpers/eventually.js';
import { rawConnect, rawRequest, readReply, upgradeLines } from '../../helpers/wire/raw-http.js';
import { CountedSlices } from './counted-slices.js';
import { type Front, withFront } from './echo-front.js';

const host = 'Host: localhost';
const json = 'Content-Type: application/json';
const post = (front: Front, headers: readonly string[], body: string, path = '/rpc') =>
  rawRequest(front.port, [`POST ${path} HTTP/1.1`, host, `Content-Length: ${Buffer.byteLength(body)}`, ...headers], body);

test('the probes answer 200 while the engine works, else 503 with its state', () =>
  withFront({}, async (front) => {
    const get = async (path: string) => {
      const reply = await fetch(`http://127.0.0.1:${front.port}${path}`);
      return [reply.status, await reply.json()] as const;
    };
    assert.deepEqual(await get('/health'), [200, { status: 'ok' }]);
    assert.deepEqual(await get('/ready'), [200, { status: 'ready' }]);
    assert.deepEqual(await get('/version'), [200, { name: 'inferd', version: '0.0.0', protocol: 1 }]);
    front.healthy = false;
    assert.deepEqual(await get('/health'), [503, { status: 'starting' }]);
    assert.deepEqual(await get('/ready'), [503, { status: 'starting' }]);
    front.healthy = true;
    front.accepting = false;
    assert.deepEqual(await get('/ready'), [503, { status: 'draining' }]);
    assert.deepEqual(await get('/health'), [200, { status: 'ok' }]);
  }));

test('HEAD, OPTIONS, unknown paths and unknown methods are answered by the book', () =>
  withFront({}, async (front) => {
    const ask = (method: string, path: string) => rawRequest(front.port, [`${method} ${path} HTTP/1.1`, host, 'Connection: close']);
    const head = await ask('HEAD', '/version');
    assert.equal(head.status, 200);
    assert.equal(head.body, '');
    assert.ok(Number(head.headers.get('content-length')) > 0);
    const options = await ask('OPTIONS', '/');
    assert.equal(options.status, 204);
    assert.equal(options.headers.get('allow'), 'GET, HEAD, POST, OPTIONS');
    const put = await ask('PUT', '/rpc');
    assert.equal(put.status, 405);
    assert.equal(put.headers.get('allow'), 'POST, OPTIONS');
    assert.equal((await ask('GET', '/rpc')).status, 405);
    const missing = await ask('GET', '/nothing');
    assert.equal(missing.status, 404);
    assert.deepEqual(JSON.parse(missing.body), {
      error: {
        message: 'There is nothing at this path; /openrpc.json describes what this daemon can do.',
        type: 'invalid_request_error',
        param: null,
        code: 'not_found',
      },
    });
    const openai = await ask('POST', '/v1/audio/speech');
    assert.equal(openai.status, 404);
    assert.match(openai.body, /This part of the HTTP API of OpenAI is not supported/);
    assert.equal((await ask('GET', '/')).status, 200);
    assert.equal((await ask('GET', '/version?x=1')).status, 200);
  }));

test('the page at / can be switched off', () =>
  withFront({ config: { server: { web_ui: false } } }, async (front) => {
    assert.equal((await rawRequest(front.port, ['GET / HTTP/1.1', host])).status, 405);
    assert.equal((await post(front, [json], '{}', '/')).status, 200);
  }));

test('a JSON body reaches JSON-RPC whole, and a notification is answered with 204', () =>
  withFront({}, async (front) => {
    assert.equal((await post(front, [json], '{"a":"é"}')).status, 200);
    assert.equal((await post(front, ['Content-Type: application/json; charset=UTF-8'], '[1]', '/')).status, 200);
    const silent = await post(front, [json], '"note"');
    assert.equal(silent.status, 204);
    assert.equal(silent.body, '');
    assert.deepEqual(front.posts, ['{"a":"é"}', '[1]', '"note"']);
  }));

test('another content type and a compressed body are 415', () =>
  withFront({}, async (front) => {
    for (const type of ['text/plain', 'application/json; charset=latin1', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      assert.equal((await post(front, [`Content-Type: ${type}`], '{}')).status, 415, type);
    }
    assert.equal((await post(front, [], '{}')).status, 415, 'no content type');
    assert.equal((await post(front, [json, 'Content-Encoding: gzip'], '{}')).status, 415);
    const chunks = ['POST /rpc HTTP/1.1', host, json, 'Transfer-Encoding: gzip, chunked'];
    assert.equal((await rawRequest(front.port, chunks, '2\r\n{}\r\n0\r\n\r\n')).status, 415);
    assert.deepEqual(front.posts, []);
  }));

test('a body over the limit is 413, whether it says its length or not, and is not read to the end', () =>
  withFront({ config: { server: { max_message_bytes: 1024 } } }, async (front) => {
    assert.equal((await post(front, [json], 'x'.repeat(1024))).status, 200);
    assert.equal((await post(front, [json], 'x'.repeat(1025))).status, 413);
    const announced = await rawRequest(front.port, ['POST /rpc HTTP/1.1', host, json, 'Content-Length: 1000000000']);
    assert.equal(announced.status, 413, 'refused before a byte of the body');
    const chunk = `200\r\n${'x'.repeat(512)}\r\n`;
    const chunked = await rawRequest(front.port, ['POST /rpc HTTP/1.1', host, json, 'Transfer-Encoding: chunked'], chunk.repeat(3));
    assert.equal(chunked.status, 413);
    assert.equal(chunked.headers.get('connection'), 'close');
    assert.equal(front.posts.length, 1);
  }));

test('Expect: 100-continue is granted only to a request that will be read', () =>
  withFront({ config: { server: { max_message_bytes: 1024 } } }, async (front) => {
    const expect = (length: number) =>
      rawRequest(front.port, ['POST /rpc HTTP/1.1', host, json, 'Expect: 100-continue', `Content-Length: ${length}`]);
    assert.equal((await expect(10)).status, 100);
    assert.equal((await expect(2000)).status, 413);
  }));

test('other expectations are not known: what they come with is answered, and counted', () =>
  withFront({}, async (front) => {
    const expecting = [host, json, 'Expect: magic', 'Connection: close'];
    const posted = await rawRequest(front.port, ['POST /rpc HTTP/1.1', ...expecting, 'Content-Length: 2'], '{}');
    assert.deepEqual([posted.status, front.posts], [200, ['{}']]);
    assert.equal((await rawRequest(front.port, ['GET /version HTTP/1.1', 'Host: evil.example', 'Expect: magic'])).status, 403);
    await eventually('both are counted', () => front.traffic.answers.reduce((sum, { count }) => sum + count, 0) === 2);
  }));

test('senders of slow headers, slow bodies and nothing at all are cut off', () =>
  withFront({ timeouts: { headersMs: 300, requestMs: 600, checkMs: 50 } }, async (front) => {
    const cut = async (text: string): Promise<number> => {
      const socket = rawConnect(front.port);
      const drip = setInterval(() => socket.writable && socket.write('x'), 40);
      socket.write(text);
      const reply = await readReply(socket);
      clearInterval(drip);
      socket.destroy();
      return reply.status;
    };
    const [headers, body, nothing] = await Promise.all([
      cut('GET /version HTTP/1.1\r\nHost: localhost\r\nX-Slow: '),
      cut(`POST /rpc HTTP/1.1\r\n${host}\r\n${json}\r\nContent-Length: 100000\r\n\r\n`),
      readReply(rawConnect(front.port)).then((r) => r.status),
    ]);
    assert.equal(headers, 408);
    assert.equal(body, 408);
    assert.ok(nothing === 408 || nothing === 0);
    assert.deepEqual(front.posts, []);
  }));

test('garbage and oversized headers get an error and a closed connection', () =>
  withFront({}, async (front) => {
    assert.equal((await rawRequest(front.port, ['\u0016\u0003\u0001 not http'])).status, 400);
    assert.equal((await rawRequest(front.port, ['GET / HTTP/1.1', host, `X: ${'y'.repeat(20_000)}`])).status, 431);
    assert.equal((await rawRequest(front.port, ['GET /version HTTP/1.1', host])).status, 200, 'and the server lives on');
  }));

test('what is no HTTP is refused behind the answers to what came before it, and in a body as the answer to that request', async () => {
  await withFront({ postSlices: () => new CountedSlices(20, slice), timeouts: { headersMs: 100, checkMs: 20 } }, async (front) => {
    const chunked = 'Transfer-Encoding: chunked';
    const fault = '\r\nno number\r\n\r\n';
    const whole = ['POST /rpc HTTP/1.1', host, json, 'Content-Length: 2', '', '{}'].join('\r\n');
    const answered = /^HTTP\/1\.1 200 .*\r\n0\r\n\r\nHTTP\/1\.1 (\d+) /s;
    assert.equal(answered.exec(await heard(front, `${whole}\u0000${fault}`))?.[1], '400');
    assert.equal(answered.exec(await heard(front, `${whole}GET /version HTTP/1.1\r\n`))?.[1], '408');
    assert.equal(
      answered.exec(await heard(front, `${whole}${['POST /rpc HTTP/1.1', host, json, chunked].join('\r\n')}\r\n${fault}`))?.[1],
      '400',
    );
    for (const [path, status] of [
      ['/rpc', '400'],
      ['/nothing', '404'],
    ] as const) {
      const reply = await heard(front, `${[`POST ${path} HTTP/1.1`, host, json, chunked].join('\r\n')}\r\n${fault}`);
      assert.deepEqual(
        [...reply.matchAll(/HTTP\/1\.1 (\d+)/g)].map((found) => found[1]),
        [status],
      );
    }
  });
});

/** All that is answered to these bytes until the connection is closed. */
async function heard(front: Front, bytes: string): Promise<string> {
  const socket = rawConnect(front.port);
  let text = '';
  socket.on('data', (part: Buffer) => {
    text += part.toString('latin1');
  });
  socket.write(bytes, 'latin1');
  await inTime('the end', once(socket, 'close'));
  return text;
}

test('a client that leaves in the middle of its body harms nobody', () =>
  withFront({}, async (front) => {
    const socket = rawConnect(front.port);
    socket.write(`POST /rpc HTTP/1.1\r\n${host}\r\n${json}\r\nContent-Length: 100\r\n\r\n{`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.destroy();
    assert.equal((await post(front, [json], '{}')).status, 200);
    assert.deepEqual(front.posts, ['{}']);
  }));

test('CORS: listed origins get their preflight, others and private-network requests do not', () =>
  withFront({ config: { auth: { allowed_origins: ['https://app.example'] } } }, async (front) => {
    const preflight = (...extra: string[]) =>
      rawRequest(front.port, ['OPTIONS /rpc HTTP/1.1', host, 'Access-Control-Request-Method: POST', ...extra]);
    const granted = await preflight('Origin: https://app.example');
    assert.equal(granted.status, 204);
    assert.equal(granted.headers.get('access-control-allow-origin'), 'https://app.example');
    assert.equal(granted.headers.get('access-control-allow-headers'), 'authorization, content-type');
    const asked = await preflight('Origin: https://app.example', 'Access-Control-Request-Headers: X-Stainless-OS,x-stainless-lang, a b');
    assert.equal(asked.headers.get('access-control-allow-headers'), 'authorization, content-type, x-stainless-os, x-stainless-lang');
    assert.equal(granted.headers.has('access-control-allow-credentials'), false);
    const foreign = await preflight('Origin: https://evil.example');
    assert.equal(foreign.status, 403);
    assert.equal(foreign.headers.has('access-control-allow-origin'), false);
    const reach = await preflight('Origin: https://app.example', 'Access-Control-Request-Private-Network: true');
    assert.equal(reach.status, 403);
    assert.equal(reach.headers.has('access-control-allow-origin'), false);
    const real = await post(front, [json, 'Origin: https://app.example'], '{}');
    assert.equal(real.headers.get('access-control-allow-origin'), 'https://app.example');
    assert.equal((await post(front, [json], '{}')).headers.has('access-control-allow-origin'), false);
  }));

test('a request that offers another protocol than WebSocket is answered as any other, and so are those behind it', () =>
  withFront({}, async (front) => {
    const offer = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'];
    const body = `{"jsonrpc":"2.0","method":"ping","params":["${'é'.repeat(100_000)}"]}`;
    const posted = await post(front, [json, ...offer], body);
    assert.deepEqual([posted.status, posted.body, front.posts], [200, '{"jsonrpc":"2.0"}', [body]]);
    const socket = rawConnect(front.port);
    const get = (path: string, headers: readonly string[]) => `${[`GET ${path} HTTP/1.1`, host, ...headers].join('\r\n')}\r\n\r\n`;
    socket.write(get('/version', offer));
    assert.equal((await readReply(socket)).status, 200);
    socket.write(get('/health', []));
    assert.deepEqual(JSON.parse((await readReply(socket)).body), { status: 'ok' });
    socket.write(get('/version', [...offer, 'Origin: https://evil.example']));
    assert.equal((await readReply(socket)).status, 403, 'the gate sees it too');
    socket.destroy();
  }));

for (const count of [2, 3, 20, 500]) {
  test(`${count} pipelined requests that all offer another protocol are all answered, in order`, () =>
    withFront({}, async (front) => {
      const offer = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'];
      const asking = (path: string) => `${[`GET ${path} HTTP/1.1`, host, ...offer].join('\r\n')}\r\n\r\n`;
      const socket = rawConnect(front.port);
      let text = '';
      socket.on('data', (part) => {
        text += part.toString('latin1');
      });
      // The last one's answer ends the connection.
      socket.write(asking('/version').repeat(count - 1) + asking('/nothing'));
      await inTime('the last one is answered', once(socket, 'close'));
      const statuses = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => match[1]);
      assert.deepEqual(statuses, [...Array.from({ length: count - 1 }, () => '200'), '404']);
    }));
}

test('a WebSocket that is asked for behind another request opens after its answer', () =>
  withFront({}, async (front) => {
    const socket = rawConnect(front.port);
    let text = '';
    socket.on('data', (part) => {
      text += part.toString('latin1');
    });
    const get = `${['GET /version HTTP/1.1', host].join('\r\n')}\r\n\r\n`;
    const [start = '', ...lines] = upgradeLines('/rpc');
    socket.write(`${get}${[start, host, ...lines].join('\r\n')}\r\n\r\n`);
    await eventually('both are answered', () => text.includes('101 Switching Protocols'));
    assert.ok(text.indexOf(' 200 OK') < text.indexOf('"version"') && text.indexOf('"version"') < text.indexOf(' 101 '), text);
    socket.destroy();
  }));

test('every header is looked at, however many there are', () =>
  withFront({}, async (front) => {
    const many = Array.from({ length: 2100 }, () => 'a:b');
    const ask = (extra: string) => rawRequest(front.port, ['GET /openrpc.json HTTP/1.1', host, ...many, extra, 'Connection: close']);
    for (const bad of ['Origin: http://evil.test', 'Host: evil.test', 'Sec-Fetch-Site: cross-site']) {
      const { status } = await ask(bad);
      assert.ok(status >= 400 && status < 500, `${bad}: ${status}`);
    }
    assert.equal((await ask('Accept: */*')).status, 200);
  }));

test('an upgrade elsewhere than / and /rpc is 404, and a stopping daemon takes none', () =>
  withFront({}, async (front) => {
    const upgrade = (path: string) => rawRequest(front.port, [`GET ${path} HTTP/1.1`, host, 'Connection: Upgrade', 'Upgrade: websocket']);
    assert.equal((await upgrade('/health')).status, 404);
    assert.equal((await upgrade('/rpc')).status, 400, 'no key');
    front.accepting = false;
    assert.equal((await upgrade('/rpc')).status, 503);
  }));

const slice = (i: number) => `${i} 🦊 ${'x'.repeat(60_000)}\n`;

test('a large answer comes in chunks as the client takes them, and its connection goes on', async () => {
  const all: CountedSlices[] = [];
  const postSlices = () => {
    const slices = new CountedSlices(500, slice);
    all.push(slices);
    return slices;
  };
  await withFront({ postSlices }, async (front) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (let i = 0; i < 2; i++) {
      const response = await postWith(agent, front.port);
      assert.equal(response.headers['transfer-encoding'], 'chunked');
      assert.equal(response.headers['content-type'], 'application/json; charset=utf-8');
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.ok((all[i]?.made ?? 0) < 300, `${all[i]?.made} of 500 slices were made before the client took any`);
      const parts: Buffer[] = [];
      for await (const part of response) parts.push(part as Buffer);
      assert.equal(Buffer.concat(parts).toString(), all[i]?.text);
      assert.equal(all[i]?.closed, 1);
    }
    agent.destroy();
  });
});

test('a client that leaves in the middle of a large answer stops it; one that cannot be finished breaks the connection', async () => {
  let fails = false;
  let slices = new CountedSlices(0, slice);
  const postSlices = () => {
    slices = new CountedSlices(100_000, (i) => {
      if (fails && i === 5) throw new Error('a bug');
      return slice(i);
    });
    return slices;
  };
  await withFront({ postSlices }, async (front) => {
    const left = await postWith(new Agent(), front.port);
    left.destroy();
    await eventually('the slices are closed', () => slices.closed === 1);
    const { made } = slices;
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(slices.made, made);
    fails = true;
    const broken = await postWith(new Agent(), front.port);
    await assert.rejects(async () => {
      for await (const _ of broken);
    }, /aborted/);
    assert.equal(slices.closed, 1);
    assert.equal((await fetch(`http://127.0.0.1:${front.port}/health`)).status, 200);
  });
});

function postWith(agent: Agent, port: number): Promise<IncomingMessage> {
  const headers = { 'content-type': 'application/json' };
  return new Promise((resolve, reject) => {
    request({ port, host: '127.0.0.1', path: '/rpc', method: 'POST', agent, headers }, resolve).on('error', reject).end('{}');
  });
}

test('the HTTP face of a method hands over query and body, and takes no body but JSON when it reads one', () =>
  withFront({}, async (front) => {
    const at = `http://127.0.0.1:${front.port}`;
    const headers = { 'content-type': 'application/json' };
    assert.equal((await fetch(`${at}/things?name=a%20b&limit=2`)).status, 200);
    assert.equal((await fetch(`${at}/things`, { method: 'POST', headers, body: '{"a":1}' })).status, 200);
    assert.equal((await fetch(`${at}/things`, { method: 'POST', body: 'a=1' })).status, 415);
    assert.equal((await fetch(`${at}/start_profile`, { method: 'POST', body: 'whatever' })).status, 200);
    assert.equal((await fetch(`${at}/start_profile`)).status, 405);
    assert.deepEqual(front.posts, ['things.list ?name=a+b&limit=2 ', 'things.make ? {"a":1}', 'profile.start ? whatever']);
  }));
