/**
 * Who gets in, by every door: a daemon that listens on all addresses and on a Unix socket, with a token, tried with tables of Host, Origin,
 * Sec-Fetch-Site and token as a GET, a JSON-RPC call by POST and a WebSocket upgrade.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { silentLog } from '../../../actors/runtime/log.js';
import { readDaemonFile } from '../../../config/paths.js';
import { type Daemon, startDaemon } from '../../../daemon/daemon.js';
import { loadOrCreateToken } from '../../../daemon/front/auth/own-token.js';
import { Tokens } from '../../../daemon/front/auth/tokens.js';
import { StartError } from '../../../daemon/start-error.js';
import { FakeEngineHandle, fakeModel } from '../../helpers/engine/fake-engine-handle.js';
import { eventually } from '../../helpers/eventually.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { testConfig } from '../../helpers/test-config.js';
import { type RawReply, rawRequest, upgradeLines } from '../../helpers/wire/raw-http.js';

const env = { XDG_RUNTIME_DIR: tempFolder() };
const socketPath = join(tempFolder(), 'inferd.sock');
let daemon: Daemon;
let token: string;
let port: number;

before(async () => {
  const engine = new FakeEngineHandle();
  const started = startDaemon({
    config: testConfig({
      server: { host: '0.0.0.0', port: 0, unix_socket: socketPath },
      auth: { mode: 'token', allowed_hosts: ['box.example'], allowed_origins: ['https://app.example'] },
    }),
    model: fakeModel,
    log: silentLog,
    publish: true,
    signals: false,
    env,
    startEngine: engine.start,
  });
  await eventually('the daemon publishes itself', () => readDaemonFile(env) !== null);
  engine.becomeReady();
  daemon = await started;
  port = Number(new URL(daemon.addresses.http).port);
  token = readFileSync(readDaemonFile(env)?.tokenFile ?? '', 'utf8').trim();
});
after(() => daemon.stop('the test is over'));

const call = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
type Door = (to: number | string, headers: readonly string[]) => Promise<RawReply>;
const ways: readonly (readonly [name: string, open: number, door: Door])[] = [
  ['GET', 200, (to, headers) => rawRequest(to, ['GET /openrpc.json HTTP/1.1', ...headers])],
  [
    'POST',
    200,
    (to, headers) =>
      rawRequest(to, ['POST /rpc HTTP/1.1', 'Content-Type: application/json', `Content-Length: ${call.length}`, ...headers], call),
  ],
  ['upgrade of /', 101, (to, headers) => rawRequest(to, upgradeLines('/', headers))],
  ['upgrade of /rpc', 101, (to, headers) => rawRequest(to, upgradeLines('/rpc', headers))],
];

/** Null status: let in. */
type Row = readonly [headers: readonly string[], refusedWith: number | null];
const good = () => `Authorization: Bearer ${token}`;

async function tryAll(to: number | string, rows: readonly Row[]): Promise<void> {
  for (const [headers, refusedWith] of rows) {
    for (const [name, open, door] of ways) {
      const reply = await door(to, headers);
      assert.equal(reply.status, refusedWith ?? open, `${name} with ${headers.join(', ')}`);
      if (refusedWith === null) continue;
      assert.equal(reply.headers.has('access-control-allow-origin') && !headers.includes('Origin: https://app.example'), false);
      assert.doesNotMatch(reply.body, new RegExp(token));
    }
  }
}

test('on all addresses: only known hosts, no foreign page, and never without the token', () =>
  tryAll(port, [
    [[`Host: 127.0.0.1:${port}`, good()], null],
    [['Host: localhost', good()], null],
    [['Host: box.example:1', good()], null],
    [['Host: localhost', `Authorization: bearer ${token}`], null],
    [['Host: localhost', 'Origin: https://app.example', good()], null],
    [[`Host: localhost:${port}`, `Origin: http://localhost:${port}`, good()], null],
    [['Host: localhost'], 401],
    [['Host: localhost', 'Authorization: Bearer '], 401],
    [['Host: localhost', `Authorization: Bearer ${token.slice(0, -1)}`], 401],
    [['Host: localhost', `Authorization: Bearer ${token}x`], 401],
    [['Host: localhost', `Authorization: Basic ${token}`], 401],
    [['Host: localhost', `Cookie: token=${token}`], 401],
    [['Host: localhost', `X-Api-Key: ${token}`], null],
    [['Host: localhost', 'Origin: https://app.example'], 401],
    [['Host: evil.example', good()], 403],
    [['Host: 0.0.0.0', good()], 403],
    [['Host: 10.0.0.1', good()], 403],
    [['Host: localhost.evil.example', good()], 403],
    [['Host: localhost', 'Origin: https://evil.example', good()], 403],
    [['Host: localhost', 'Origin: null', good()], 403],
    [['Host: localhost', 'Origin: app://x', good()], 403],
    [['Host: localhost', 'Origin: http://app.example', good()], 403],
    [['Host: localhost', 'Sec-Fetch-Site: cross-site', good()], 403],
    [['Host: evil.example'], 403],
    [[good()], 400],
    [['Host: localhost', 'Host: evil.example', good()], 400],
    [['Host: localhost', 'Origin: https://app.example', 'Origin: https://evil.example', good()], 400],
  ]));

test('over the Unix socket: no Host needed, the same for pages and tokens', () =>
  tryAll(socketPath, [
    [[good()], null],
    [['Host: whatever', good()], null],
    [['Origin: https://app.example', good()], null],
    [[], 401],
    [['Authorization: Bearer x'], 401],
    [['Origin: https://evil.example', good()], 403],
    [['Origin: null', good()], 403],
    [['Origin: http://localhost', good()], 403],
    [['Sec-Fetch-Site: cross-site', good()], 403],
  ]));

test('the files are for this user only, and another user cannot connect', { skip: process.getuid === undefined }, (t) => {
  const file = readDaemonFile(env)?.tokenFile ?? '';
  assert.equal(statSync(socketPath).mode & 0o777, 0o600);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(statSync(dirname(file)).mode & 0o777, 0o700);
  if (process.getuid?.() !== 0) {
    t.diagnostic('not tried as another user: only root can become one');
    return;
  }
  // The folder of a test is private already; opened, only the socket's own mode protects it.
  chmodSync(dirname(socketPath), 0o755);
  const script = `require('node:net').connect(process.argv[1]).on('connect', () => process.exit(0)).on('error', (e) => {
    process.stdout.write(e.code); process.exit(1); })`;
  const connect = (as: object) => spawnSync(process.execPath, ['-e', script, socketPath], { ...as, cwd: '/', encoding: 'utf8' });
  const other = connect({ uid: 65_534, gid: 65_534 });
  if (other.error) {
    t.diagnostic(`not tried as another user: ${other.error.message}`);
    return;
  }
  assert.deepEqual([other.status, other.stdout], [1, 'EACCES']);
  assert.equal(connect({}).status, 0);
});

test('a FIFO in place of the token file is refused at once', { skip: process.platform === 'win32' }, () => {
  const fifo = join(tempFolder(), 'token');
  execFileSync('mkfifo', ['-m', '600', fifo]);
  assert.throws(
    () => loadOrCreateToken(fifo),
    (e) => e instanceof StartError && e.exitCode === 77 && /not a regular file/.test(e.message),
  );
});

test('a token that is nearly right is wrong', () => {
  const real = loadOrCreateToken(join(tempFolder(), 'token'));
  const tokens = new Tokens({ own: real, folder: null, log: silentLog });
  const wrong = [`${real.slice(0, -1)}!`, `!${real.slice(1)}`, 'x', 'y'.repeat(real.length)];
  for (const shown of wrong) assert.equal(tokens.find(shown), null);
  assert.ok(tokens.find(real));
});
