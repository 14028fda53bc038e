/** Host, Origin and Sec-Fetch-Site: which requests pass the gate, by header tables and over real sockets. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { checkGate, gateRules, hostName, type Sender, type Verdict } from '../../../daemon/front/gate.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { rawRequest, upgradeLines } from '../../helpers/wire/raw-http.js';
import { startFront } from './echo-front.js';
import { tokenAuth } from './token-auth.js';

const rules = gateRules({ allowed_hosts: ['Box.Example:9000', '192.168.1.5'], allowed_origins: ['https://app.example', 'app://desk'] });

function judge(headers: Record<string, string>, unix = false): Verdict {
  const rawHeaders = Object.entries(headers).flat();
  const lower = Object.fromEntries(Object.entries(headers).map(([k, v]) => [k.toLowerCase(), v]));
  return checkGate({ headers: lower, rawHeaders }, rules, unix);
}

function verdictOf(headers: Record<string, string>, unix = false): number {
  const verdict = judge(headers, unix);
  return verdict.ok ? 200 : verdict.status;
}

const hosts: readonly (readonly [host: string, status: number])[] = [
  ['127.0.0.1', 200],
  ['127.0.0.1:8765', 200],
  ['127.1.2.3:1', 200],
  ['127.255.255.255', 200],
  ['localhost', 200],
  ['LocalHost:8765', 200],
  ['localhost.', 200],
  ['localhost.:8765', 200],
  ['[::1]', 200],
  ['[::1]:8765', 200],
  ['box.example', 200],
  ['BOX.example.:1234', 200],
  ['192.168.1.5:8765', 200],
  ['', 400],
  ['evil.example', 403],
  ['evil.example:8765', 403],
  ['localhost.evil.example', 403],
  ['127.0.0.1.evil.example', 403],
  ['evil-localhost', 403],
  ['sub.localhost', 403],
  ['0.0.0.0', 403],
  ['0.0.0.0:8765', 403],
  ['127.1', 403],
  ['2130706433', 403],
  ['0x7f.0.0.1', 403],
  ['0177.0.0.1', 403],
  ['127.0.0.256', 403],
  ['128.0.0.1', 403],
  ['::1', 403],
  ['[::ffff:127.0.0.1]', 403],
  ['[::]', 403],
  ['localhost:99999', 403],
  ['localhost:', 403],
  ['user@localhost', 403],
  ['localhost, evil.example', 403],
  ['localhost/evil', 403],
  ['localhost..', 403],
  ['ｌocalhost', 403],
];

test('a Host passes only when it is literal loopback, localhost or listed', () => {
  for (const [host, status] of hosts) assert.equal(verdictOf({ Host: host }), status, `Host: ${host}`);
  assert.equal(verdictOf({}), 400, 'no Host');
});

test('the same Hosts are judged alike on requests and on upgrades of a real listener', async () => {
  const front = await startFront({ config: { auth: { allowed_hosts: ['box.example', '192.168.1.5'] } } });
  try {
    for (const [host, status] of hosts) {
      const name = Buffer.from(host, 'utf8').toString('latin1');
      const got = await rawRequest(front.port, ['GET /version HTTP/1.1', `Host: ${name}`]);
      assert.equal(got.status, status, `request with Host: ${host}`);
      const upgraded = await rawRequest(front.port, upgradeLines('/', [`Host: ${name}`]));
      assert.equal(upgraded.status, status === 200 ? 101 : status, `upgrade with Host: ${host}`);
    }
    assert.equal((await rawRequest(front.port, ['GET /version HTTP/1.0'])).status, 400, 'HTTP/1.0 without Host');
    assert.equal((await rawRequest(front.port, ['GET /version HTTP/1.1'])).status, 400, 'HTTP/1.1 without Host');
    assert.equal((await rawRequest(front.port, upgradeLines())).status, 400, 'upgrade without Host');
    const twice = ['GET /version HTTP/1.1', 'Host: localhost', 'Host: evil.example'];
    assert.equal((await rawRequest(front.port, twice)).status, 400, 'two Hosts');
    const absolute = ['GET http://evil.example/version HTTP/1.1', 'Host: localhost'];
    assert.equal((await rawRequest(front.port, absolute)).status, 404, 'a second host in the request line');
  } finally {
    await front.close();
  }
});

test('a request over a Unix socket needs no Host, but a foreign Origin is refused there too', async () => {
  const path = join(tempFolder(), 's');
  const front = await startFront({ path });
  try {
    assert.equal((await rawRequest(path, ['GET /version HTTP/1.1'])).status, 200);
    assert.equal((await rawRequest(path, upgradeLines('/', ['Host: whatever']))).status, 101);
    assert.equal((await rawRequest(path, upgradeLines('/', ['Origin: http://evil.example']))).status, 403);
  } finally {
    await front.close();
  }
});

test('an Origin passes when it is absent, our own, or listed exactly', () => {
  const cases: readonly (readonly [origin: string, status: number])[] = [
    ['http://127.0.0.1:8765', 200],
    ['HTTP://127.0.0.1:8765', 200],
    ['https://app.example', 200],
    ['app://desk', 200],
    ['http://app.example', 403],
    ['https://app.example:444', 403],
    ['https://app.example.evil.example', 403],
    ['https://127.0.0.1:8765', 403],
    ['http://127.0.0.1:3000', 403],
    ['http://localhost:8765', 403],
    ['http://evil.example', 403],
    ['null', 403],
    ['app://x', 403],
    ['file://', 403],
    ['', 403],
  ];
  for (const [origin, status] of cases) assert.equal(verdictOf({ Host: '127.0.0.1:8765', Origin: origin }), status, `Origin: ${origin}`);
});

test('a cross-site fetch is refused unless its Origin is listed', () => {
  const site = { Host: 'localhost:1', 'Sec-Fetch-Site': 'cross-site' };
  assert.equal(verdictOf(site), 403);
  assert.equal(verdictOf({ ...site, Origin: 'http://localhost:1' }), 403);
  assert.equal(verdictOf({ ...site, Origin: 'https://app.example' }), 200);
  assert.equal(verdictOf({ Host: 'localhost:1', 'Sec-Fetch-Site': 'same-origin' }), 200);
  assert.equal(verdictOf({ Host: 'localhost:1', 'Sec-Fetch-Site': 'none' }), 200);
});

test('a foreign page never gets a 101, with or without the token', async () => {
  const front = await startFront({ auth: tokenAuth('secret') });
  try {
    const origins: readonly (readonly [origin: string | null, passes: boolean])[] = [
      [null, true],
      [`http://127.0.0.1:${front.port}`, true],
      ['http://evil.example', false],
      ['null', false],
      ['app://x', false],
    ];
    for (const [origin, passes] of origins) {
      for (const token of [null, 'secret', 'wrong']) {
        const lines = upgradeLines('/rpc', [
          `Host: 127.0.0.1:${front.port}`,
          ...(origin === null ? [] : [`Origin: ${origin}`]),
          ...(token === null ? [] : [`Authorization: Bearer ${token}`]),
        ]);
        const expected = !passes ? 403 : token === 'secret' ? 101 : 401;
        assert.equal((await rawRequest(front.port, lines)).status, expected, `Origin ${origin}, token ${token}`);
      }
    }
    assert.equal(front.handlers.length, 2);
  } finally {
    await front.close();
  }
});

test('hostName strips port and trailing dot and keeps brackets', () => {
  assert.equal(hostName('A.b:80'), 'a.b');
  assert.equal(hostName('[::1]:80'), '[::1]');
  assert.equal(hostName('a b'), null);
});

test('a page is told from a program, and ours from others', () => {
  const host = { Host: '127.0.0.1:8765' };
  const cases: readonly (readonly [Record<string, string>, Sender])[] = [
    [{}, 'program'],
    [{ 'Sec-Fetch-Site': 'same-origin' }, 'own page'],
    [{ 'Sec-Fetch-Site': 'same-site' }, 'other page'],
    [{ 'Sec-Fetch-Site': 'none' }, 'other page'],
    [{ Origin: 'http://127.0.0.1:8765' }, 'own page'],
    [{ Origin: 'http://127.0.0.1:8765', 'Sec-Fetch-Site': 'same-origin' }, 'own page'],
    [{ Origin: 'https://app.example' }, 'other page'],
    [{ Origin: 'https://app.example', 'Sec-Fetch-Site': 'same-site' }, 'other page'],
  ];
  for (const [headers, sender] of cases) {
    const verdict = judge({ ...host, ...headers });
    assert.ok(verdict.ok);
    assert.equal(verdict.sender, sender, JSON.stringify(headers));
  }
});

test('where nobody shows who he is, programs and our own page may do all, pages of listed origins do not administer', async () => {
  const front = await startFront({ config: { auth: { allowed_origins: ['https://app.example'] } } });
  try {
    const post = (...headers: string[]) =>
      rawRequest(front.port, ['POST /start_profile HTTP/1.1', `Host: 127.0.0.1:${front.port}`, 'Content-Length: 0', ...headers]);
    assert.equal((await post()).status, 200);
    assert.equal((await post(`Origin: http://127.0.0.1:${front.port}`)).status, 200);
    const page = await post('Origin: https://app.example');
    assert.equal(page.status, 403);
    assert.match(page.body, /"insufficient_scope"/);
    assert.equal((await post('Sec-Fetch-Site: same-site')).status, 403);
    assert.equal((await post('Origin: http://localhost:3000', 'Sec-Fetch-Site: same-site')).status, 403);
    const open = (origin: string) => rawRequest(front.port, upgradeLines('/rpc', [`Host: 127.0.0.1:${front.port}`, `Origin: ${origin}`]));
    await open('https://app.example');
    await open(`http://127.0.0.1:${front.port}`);
    assert.deepEqual(
      front.handlers.map(({ options }) => [...options.scopes]),
      [
        ['infer', 'metrics'],
        ['infer', 'metrics', 'admin'],
      ],
    );
  } finally {
    await front.close();
  }
});

test('ranges of addresses may be listed, and where clients show who they are, the address that was asked is a good Host', () => {
  const ranges = gateRules({ allowed_hosts: ['192.168.1.0/24', 'fd00::/8', '10.0.0.7/32'], allowed_origins: [] });
  const status = (host: string, acceptedAt: string | null = null) => {
    const verdict = checkGate({ headers: { host }, rawHeaders: ['Host', host] }, ranges, false, acceptedAt);
    return verdict.ok ? 200 : verdict.status;
  };
  for (const host of ['192.168.1.1', '192.168.1.255:8765', '[fd12::1]:8765', '10.0.0.7']) assert.equal(status(host), 200, host);
  for (const host of ['192.168.2.1', '10.0.0.8', '[fe80::1]', '192.168.1', '3232235777', '192.168.1.1.evil.example', '192.168.1.0/24'])
    assert.equal(status(host), 403, host);
  assert.equal(status('172.17.0.2:8765', '172.17.0.2'), 200);
  assert.equal(status('172.17.0.2:8765', '::ffff:172.17.0.2'), 200);
  assert.equal(status('[2001:db8::5]:8765', '2001:db8::5'), 200);
  assert.equal(status('172.17.0.3', '172.17.0.2'), 403);
  assert.equal(status('evil.example', '172.17.0.2'), 403);
});
