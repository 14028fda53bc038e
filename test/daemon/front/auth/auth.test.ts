/** The ways a client may show a token, and what the door answers without one. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLog } from '../../../../actors/runtime/log.js';
import { type Auth, createAuth } from '../../../../daemon/front/auth/auth.js';
import { shownToken } from '../../../../daemon/front/auth/shown-token.js';
import { StartError } from '../../../../daemon/start-error.js';
import { tempFolder } from '../../../helpers/temp-folder.js';
import { type ConfigChanges, testConfig } from '../../../helpers/test-config.js';
import { rawRequest, upgradeLines } from '../../../helpers/wire/raw-http.js';
import { startFront } from '../echo-front.js';
import { wrongTokens } from './wrong-tokens.js';

function authOf(changes: ConfigChanges): { readonly auth: Auth; readonly tokenFile: string } {
  const folder = tempFolder();
  const tokenFile = join(folder, 'token');
  return {
    auth: createAuth(
      testConfig(changes),
      { tokenFile, tokensFolder: join(folder, 'tokens'), keysFolder: join(folder, 'keys'), trustedKeys: [] },
      silentLog,
    ),
    tokenFile,
  };
}

test('mode none is for loopback only, makes no token and asks nobody', () => {
  assert.throws(
    () => authOf({ server: { host: '0.0.0.0' } }),
    (e) => e instanceof StartError && e.exitCode === 78 && /auth\.mode = "token"/.test(e.message),
  );
  const { auth, tokenFile } = authOf({});
  assert.deepEqual([auth.token, auth.modes, existsSync(tokenFile)], [null, [], false]);
  const open = authOf({ auth: { mode: 'token' }, server: { host: '0.0.0.0' } });
  assert.match(open.auth.token ?? '', /^[\w-]{43}$/);
  open.auth.close();
});

test('a token is found in two headers and in the subprotocol, and nowhere else', () => {
  assert.equal(shownToken({ authorization: 'Bearer abc' }), 'abc');
  assert.equal(shownToken({ authorization: 'bearer  abc ' }), 'abc');
  assert.equal(shownToken({ authorization: 'Basic abc' }), null);
  assert.equal(shownToken({ authorization: 'Bearer a b' }), null);
  assert.equal(shownToken({ 'x-api-key': 'abc' }), 'abc');
  assert.equal(shownToken({ 'x-api-key': 'a b' }), null);
  assert.equal(shownToken({ authorization: 'Bearer abc', 'x-api-key': 'def' }), 'abc');
  assert.equal(shownToken({ 'sec-websocket-protocol': 'jsonrpc, bearer.abc' }), 'abc');
  assert.equal(shownToken({ 'sec-websocket-protocol': 'jsonrpc' }), null);
  assert.equal(shownToken({}), null);
});

test('without the token only probes and pages answer; everything else is 401 with a challenge', async () => {
  const { auth, tokenFile } = authOf({ auth: { mode: 'token' } });
  const token = readFileSync(tokenFile, 'utf8').trim();
  const front = await startFront({ auth });
  const host = 'Host: localhost';
  const get = (path: string, ...extra: string[]) => rawRequest(front.port, [`GET ${path} HTTP/1.1`, host, ...extra]);
  const post = (...extra: string[]) =>
    rawRequest(front.port, ['POST /rpc HTTP/1.1', host, 'Content-Type: application/json', 'Content-Length: 2', ...extra], '{}');
  try {
    for (const path of ['/health', '/ready', '/version', '/', '/docs']) assert.equal((await get(path)).status, 200, path);
    for (const path of ['/openapi.json', '/openrpc.json', '/metrics']) {
      const refused = await get(path);
      assert.equal(refused.status, 401, path);
      assert.match(refused.headers.get('www-authenticate') ?? '', /^Bearer/);
      assert.match(refused.body, /"invalid_api_key"/);
      assert.equal((await get(path, `Authorization: Bearer ${token}`)).status, 200, path);
      assert.equal((await get(path, `X-Api-Key: ${token}`)).status, 200, path);
      assert.equal((await get(`${path}?token=${token}`)).status, 401, 'a token in the URL is not looked at');
    }
    assert.equal((await post()).status, 401);
    assert.equal((await post(`Authorization: Bearer ${token}x`)).status, 401);
    assert.equal((await post(`Authorization: Bearer ${token}`)).status, 200);
    assert.deepEqual(front.posts, ['{}']);

    assert.equal((await rawRequest(front.port, upgradeLines('/', [host]))).status, 401);
    const wrong = await rawRequest(front.port, upgradeLines('/', [host, 'Sec-WebSocket-Protocol: jsonrpc, bearer.nope']));
    assert.equal(wrong.status, 401);
    const right = await rawRequest(front.port, upgradeLines('/', [host, `Sec-WebSocket-Protocol: jsonrpc, bearer.${token}`]));
    assert.equal(right.status, 101);
    assert.equal(right.headers.get('sec-websocket-protocol'), 'jsonrpc', 'the token is not sent back');
  } finally {
    await front.close();
    auth.close();
  }
});

test('a wrong token is refused however much of it is right, and the refusal does not tell', async () => {
  const { auth } = authOf({ auth: { mode: 'token' } });
  const token = auth.token ?? assert.fail('mode token has a token');
  const front = await startFront({ auth });
  const shown = (wrong: string) => [
    ['GET /openrpc.json HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${wrong}`],
    ['GET /openrpc.json HTTP/1.1', 'Host: localhost', `x-api-key: ${wrong}`],
    upgradeLines('/', ['Host: localhost', `Sec-WebSocket-Protocol: jsonrpc, bearer.${wrong}`]),
  ];
  try {
    const replies = new Set<string>();
    for (const wrong of wrongTokens(token)) {
      for (const lines of shown(wrong)) {
        const { status, headers, body } = await rawRequest(front.port, lines);
        assert.equal(status, 401, wrong);
        replies.add(JSON.stringify([[...headers].filter(([name]) => name !== 'date'), body]));
      }
    }
    assert.equal(replies.size, 2, `one reply over HTTP and one for an upgrade:\n${[...replies].join('\n')}`);
  } finally {
    await front.close();
    auth.close();
  }
});
