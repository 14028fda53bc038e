/** The token file and the ways a client may show the token. */
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { createAuth, loadOrCreateToken, shownToken } from '../../../daemon/front/auth.js';
import { StartError } from '../../../daemon/start-error.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { testConfig } from '../../helpers/test-config.js';
import { rawRequest, upgradeLines } from '../../helpers/wire/raw-http.js';
import { startFront } from './echo-front.js';

const folder = () => tempFolder();
const refusedWith = (exitCode: number, text: RegExp) => (error: unknown) =>
  error instanceof StartError && error.exitCode === exitCode && text.test(error.message);

test('a token is made once, with 256 random bits and mode 0600, and read again', () => {
  const file = join(folder(), 'token');
  const token = loadOrCreateToken(file);
  assert.equal(Buffer.from(token, 'base64url').length, 32);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(loadOrCreateToken(file), token);
  assert.notEqual(loadOrCreateToken(join(folder(), 'token')), token);
});

test('a token file that group or world can touch stops the start', () => {
  for (const mode of [0o640, 0o604, 0o660, 0o620, 0o610, 0o644, 0o777]) {
    const file = join(folder(), 'token');
    loadOrCreateToken(file);
    chmodSync(file, mode);
    assert.throws(() => loadOrCreateToken(file), refusedWith(77, /chmod 600/), mode.toString(8));
  }
});

test('a symbolic link, a folder and a dangling link are no token files, and nothing is written through them', () => {
  const dir = folder();
  const real = join(dir, 'real');
  loadOrCreateToken(real);
  const link = join(dir, 'link');
  symlinkSync(real, link);
  assert.throws(() => loadOrCreateToken(link), refusedWith(77, /symbolic link/));
  const dangling = join(dir, 'dangling');
  symlinkSync(join(dir, 'elsewhere'), dangling);
  assert.throws(() => loadOrCreateToken(dangling), refusedWith(77, /symbolic link/));
  assert.equal(existsSync(join(dir, 'elsewhere')), false);
  mkdirSync(join(dir, 'sub'));
  assert.throws(() => loadOrCreateToken(join(dir, 'sub')), refusedWith(77, /not a regular file/));
});

test('a file that holds no proper token stops the start', () => {
  for (const text of ['', 'short', 'two words and more of them', 'x'.repeat(2000)]) {
    const file = join(folder(), 'token');
    writeFileSync(file, text, { mode: 0o600 });
    assert.throws(() => loadOrCreateToken(file), refusedWith(78, /must hold one token/));
  }
});

test('mode none is for loopback only and ed25519 is refused', () => {
  const file = join(folder(), 'token');
  const open = testConfig({ server: { host: '0.0.0.0' } });
  assert.throws(() => createAuth(open, file), refusedWith(78, /auth\.mode = "token"/));
  assert.equal(createAuth(testConfig(), file).token, null);
  assert.equal(existsSync(file), false);
  assert.throws(() => createAuth(testConfig({ auth: { mode: 'ed25519' } }), file), refusedWith(78, /not supported/));
  assert.match(createAuth(testConfig({ auth: { mode: 'token' }, server: { host: '0.0.0.0' } }), file).token ?? '', /^[\w-]{43}$/);
});

test('the token is found in the header and in the subprotocol, and nowhere else', () => {
  assert.equal(shownToken({ authorization: 'Bearer abc' }), 'abc');
  assert.equal(shownToken({ authorization: 'bearer  abc ' }), 'abc');
  assert.equal(shownToken({ authorization: 'Basic abc' }), null);
  assert.equal(shownToken({ authorization: 'Bearer a b' }), null);
  assert.equal(shownToken({ 'sec-websocket-protocol': 'jsonrpc, bearer.abc' }), 'abc');
  assert.equal(shownToken({ 'sec-websocket-protocol': 'jsonrpc' }), null);
  assert.equal(shownToken({}), null);
});

test('without the token only probes and pages answer; everything else is 401 with a challenge', async () => {
  const file = join(folder(), 'token');
  const auth = createAuth(testConfig({ auth: { mode: 'token' } }), file);
  const token = readFileSync(file, 'utf8').trim();
  const front = await startFront({ auth });
  const host = 'Host: localhost';
  const get = (path: string, ...extra: string[]) => rawRequest(front.port, [`GET ${path} HTTP/1.1`, host, ...extra]);
  const post = (...extra: string[]) =>
    rawRequest(front.port, ['POST /rpc HTTP/1.1', host, 'Content-Type: application/json', 'Content-Length: 2', ...extra], '{}');
  try {
    for (const path of ['/health', '/ready', '/version', '/', '/docs']) assert.equal((await get(path)).status, 200, path);
    for (const path of ['/openapi.json', '/openrpc.json']) {
      const refused = await get(path);
      assert.equal(refused.status, 401, path);
      assert.match(refused.headers.get('www-authenticate') ?? '', /^Bearer/);
      assert.equal((await get(path, `Authorization: Bearer ${token}`)).status, 200, path);
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
  }
});

/** Tokens that share more and more with the right one, and some that share nothing. */
function wrongTokens(token: string): readonly string[] {
  const other = (letter: string | undefined) => (letter === 'A' ? 'B' : 'A');
  const changed = [...token].map((letter, i) => token.slice(0, i) + other(letter) + token.slice(i + 1));
  const prefixes = [...token].slice(1).map((_, i) => token.slice(0, i + 1));
  return [...changed, ...prefixes, `${token}A`, token + token, token.toUpperCase(), 'A'.repeat(10_000), '\u00e9'];
}

test('a wrong token is refused however much of it is right, and the refusal does not tell', async () => {
  const auth = createAuth(testConfig({ auth: { mode: 'token' } }), join(folder(), 'token'));
  const token = auth.token ?? assert.fail('mode token has a token');
  assert.ok(auth.authorize({ authorization: `Bearer ${token}` }, 'program'));
  const front = await startFront({ auth });
  const shown = (wrong: string) => [
    ['GET /openrpc.json HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${wrong}`],
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
  }
});

test('a token is judged by nothing but the constant-time comparison of two digests', (t) => {
  const auth = createAuth(testConfig({ auth: { mode: 'token' } }), join(folder(), 'token'));
  const token = auth.token ?? assert.fail('mode token has a token');
  const digest = (text: string) => crypto.createHash('sha256').update(text).digest('hex');
  const timingSafeEqual = crypto.timingSafeEqual;
  const compared: string[][] = [];
  // Timing itself is no test: what it would tell apart lies far below the noise of any machine. So what is compared, and how, is watched.
  const comparing = (answer: typeof timingSafeEqual) => {
    t.mock.method(crypto, 'timingSafeEqual', (a: Buffer, b: Buffer) => {
      compared.push([a.toString('hex'), b.toString('hex')]);
      return answer(a, b);
    });
    syncBuiltinESMExports();
  };
  try {
    comparing(timingSafeEqual);
    for (const shown of [token, ...wrongTokens(token)]) {
      for (const headers of [{ authorization: `Bearer ${shown}` }, { 'sec-websocket-protocol': `jsonrpc, bearer.${shown}` }]) {
        compared.length = 0;
        assert.equal(auth.authorize(headers, 'program') !== null, shown === token, shown);
        assert.deepEqual(compared, [[digest(shown), digest(token)]]);
      }
    }
    for (const answer of [true, false]) {
      comparing(() => answer);
      for (const shown of [token, 'A', ...wrongTokens(token)]) {
        assert.equal(auth.authorize({ authorization: `Bearer ${shown}` }, 'program') !== null, answer, 'no other comparison has a say');
      }
    }
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
  assert.ok(auth.authorize({ authorization: `Bearer ${token}` }, 'program'));
});
