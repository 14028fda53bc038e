/** Signatures at a real door: bodies that are not the signed ones, replays, WebSockets, official clients, and keys that are removed. */
import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync, webcrypto } from 'node:crypto';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { keysFolder } from '../../../../config/paths.js';
import { removeKey } from '../../../../daemon/front/auth/key-records.js';
import { browserSigner } from '../../../../rpc/client/browser.js';
import { ConnectError, ConnectionClosedError, connect, nodeSigner, type Signer, signedFetch } from '../../../../rpc/client/node.js';
import { signatureHeaders } from '../../../../rpc/signature/sign.js';
import { eventually, inTime } from '../../../helpers/eventually.js';
import { rawRequest, upgradeLines } from '../../../helpers/wire/raw-http.js';
import { type FakeDaemon, startFakeDaemon } from './fake-daemon.js';

let at: FakeDaemon;
let signer: Signer;
let timer: NodeJS.Timeout;
before(async () => {
  at = await startFakeDaemon({ auth: { mode: ['token', 'ed25519'], max_nonces: 1000 } });
  signer = await at.signer(['infer']);
  timer = setInterval(() => at.engine.finishAll(), 5);
});
after(async () => {
  clearInterval(timer);
  await at.daemon.stop('the test is over');
});

const port = () => Number(new URL(at.http).port);
const lines = (headers: Record<string, string>) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
const text = '{"text":"x"}';

/** A signed POST of `text` whose body, or whose headers, are then others. */
async function post(body: string, change: (headers: Record<string, string>) => Record<string, string> = (h) => h) {
  const url = new URL(`${at.http}/tokenize`);
  const made = await signatureHeaders(signer, { method: 'POST', url, body: new TextEncoder().encode(text) });
  const headers = { host: url.host, 'content-type': 'application/json', 'content-length': String(body.length), ...change(made) };
  return rawRequest(port(), ['POST /tokenize HTTP/1.1', ...lines(headers)], body);
}

test('a body that is not the signed one is refused before anything is done with it, whole or in chunks', async () => {
  assert.notEqual((await post(text)).status, 401);
  for (const body of ['{"text":"y"}', '', `${text} `, text.slice(1)]) {
    const { status, body: answer } = await post(body);
    assert.deepEqual([status, /invalid_api_key/.test(answer)], [401, true], body);
  }
  const chunked = (headers: Record<string, string>) => ({ ...headers, 'transfer-encoding': 'chunked' });
  const inChunks = async (sent: string) => {
    const url = new URL(`${at.http}/tokenize`);
    const made = await signatureHeaders(signer, { method: 'POST', url, body: new TextEncoder().encode(text) });
    const chunk = (part: string) => `${part.length.toString(16)}\r\n${part}\r\n`;
    const headers = chunked({ host: url.host, 'content-type': 'application/json', ...made });
    return rawRequest(port(), ['POST /tokenize HTTP/1.1', ...lines(headers)], `${chunk(sent.slice(0, 5))}${chunk(sent.slice(5))}0\r\n\r\n`);
  };
  assert.notEqual((await inChunks(text)).status, 401);
  assert.equal((await inChunks('{"text":"y"}')).status, 401);
});

test('a repeated request is refused, and so is one signed without its body', async () => {
  const url = new URL(`${at.http}/v1/models`);
  const made = await signatureHeaders(signer, { method: 'GET', url, body: null });
  const send = () => rawRequest(port(), ['GET /v1/models HTTP/1.1', `host: ${url.host}`, ...lines(made)]);
  assert.equal((await send()).status, 200);
  const again = await send();
  assert.equal(again.status, 401);
  assert.match(again.body, /nonce has come before/);
  assert.match(again.headers.get('accept-signature') ?? '', /"@method" "@authority" "@path" "@query" "content-digest"/);
  const bare = await signatureHeaders(signer, { method: 'POST', url: new URL(`${at.http}/tokenize`), body: null });
  const reply = await post(text, () => bare);
  assert.equal(reply.status, 401);
  assert.match(reply.body, /must cover content-digest/);
});

test('a WebSocket signs its upgrade, once', async () => {
  const client = await connect({ url: at.ws, signer });
  assert.deepEqual(await client.call('ping', {}), {});
  await assert.rejects(client.call('daemon.drain', {}), (e) => (e as { code?: number }).code === -32001);
  await client.close();
  const made = await signatureHeaders(signer, { method: 'GET', url: new URL(at.ws), body: null });
  const upgrade = () => rawRequest(port(), upgradeLines('/', [`Host: ${new URL(at.ws).host}`, ...lines(made)]));
  assert.equal((await upgrade()).status, 101);
  assert.equal((await upgrade()).status, 401);
  const stranger = nodeSigner(signer.keyid, generateKeyPairSync('ed25519').privateKey);
  await assert.rejects(connect({ url: at.ws, signer: stranger }), ConnectError);
});

test('clients that take a fetch sign by it: the official one of OpenAI, streams too', async () => {
  const openai = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', fetch: signedFetch(signer), maxRetries: 0 });
  const stream = await openai.chat.completions.create({ model: 'fake', messages: [{ role: 'user', content: 'x' }], stream: true });
  let said = '';
  for await (const chunk of stream) said += chunk.choices[0]?.delta.content ?? '';
  assert.equal(said, 'ok');
  assert.ok((await openai.models.list()).data.length > 0);
});

test('a key of WebCrypto signs as one of Node does', async () => {
  const key = generateKeyPairSync('ed25519').privateKey;
  const pkcs8 = key.export({ type: 'pkcs8', format: 'der' });
  const imported = await webcrypto.subtle.importKey('pkcs8', pkcs8, 'Ed25519', false, ['sign']);
  const data = new TextEncoder().encode('the same bytes');
  assert.deepEqual(
    Buffer.from(await browserSigner('x', imported).sign(data)),
    Buffer.from(await nodeSigner('x', key.export({ type: 'pkcs8', format: 'pem' }).toString()).sign(data)),
  );
  assert.throws(
    () =>
      nodeSigner(
        'x',
        createPrivateKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ type: 'pkcs8', format: 'pem' })),
      ),
    TypeError,
  );
});

test('a key that is removed ends its connections at once', async () => {
  const gone = await at.signer(['metrics']);
  const client = await connect({ url: at.ws, signer: gone });
  removeKey(keysFolder(at.env), gone.keyid);
  await inTime('the connection ends', client.closed);
  await assert.rejects(client.call('ping', {}), ConnectionClosedError);
  await eventually('it is not let in any more', async () => (await signedFetch(gone)(`${at.http}/openapi.json`)).status === 401);
});
