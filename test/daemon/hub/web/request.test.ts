/** Where a GET may be led, and what it takes along. Names are resolved by the test, so that any name can lead anywhere. */
import assert from 'node:assert/strict';
import type { LookupAddress } from 'node:dns';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { AddressKind } from '../../../../daemon/hub/web/address.js';
import { HubClient } from '../../../../daemon/hub/web/request.js';

const never = new AbortController().signal;

async function serve(t: TestContext, answer: (req: IncomingMessage, res: ServerResponse) => void): Promise<number> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port; // proof: listens on TCP
}

/** `names`: where each name leads, one answer after another; the last one stays. */
function clientAt(t: TestContext, url: string, names: Readonly<Record<string, string[]>> = {}, token: string | null = 'secret'): HubClient {
  const client = new HubClient(
    { url, origin: new URL(url).origin, token },
    {
      silenceMs: 5000,
      maxSockets: 4,
      resolve: (host, _, done) => {
        const line = names[host] ?? ['127.0.0.1'];
        const address = (line.length > 1 ? line.shift() : line[0]) ?? '';
        done(null, [{ address, family: address.includes(':') ? 6 : 4 } satisfies LookupAddress]);
      },
    },
  );
  t.after(() => client.close());
  return client;
}

const redirectTo = (to: string) => (req: IncomingMessage, res: ServerResponse) =>
  req.url === '/direct' ? res.end('here') : res.writeHead(302, { location: to }).end();

test('the token goes to the endpoint, also behind a redirect to itself, and to no other port or host', async (t) => {
  const seen: (string | undefined)[] = [];
  const other = await serve(t, (req, res) => {
    seen.push(req.headers.authorization);
    res.end('cdn');
  });
  const own: (string | undefined)[] = [];
  const port = await serve(t, (req, res) => {
    own.push(req.headers.authorization);
    if (req.url === '/a') res.writeHead(302, { location: '/b' }).end();
    else res.writeHead(307, { location: `http://127.0.0.1:${other}/file` }).end();
  });
  const client = clientAt(t, `http://127.0.0.1:${port}`);
  const response = await client.get(`http://127.0.0.1:${port}/a`, { signal: never });
  assert.equal(response.fromEndpoint, false);
  response.body.destroy();
  assert.deepEqual(own, ['Bearer secret', 'Bearer secret']);
  assert.deepEqual(seen, [undefined]);
});

test('a redirect to a name that leads into a local network is refused where the connection is made', async (t) => {
  const kinds: readonly (readonly [string, AddressKind])[] = [
    ['10.0.0.5', 'private'],
    ['169.254.169.254', 'link-local'],
    ['fd12::1', 'private'],
    ['0.0.0.0', 'reserved'],
  ];
  for (const [address, kind] of kinds) {
    const port = await serve(t, redirectTo('http://cdn.example/file'));
    const client = clientAt(t, `http://hub.example:${port}`, { 'cdn.example': [address] });
    await assert.rejects(client.get(`http://hub.example:${port}/x`, { signal: never }), {
      name: 'PullError',
      message: `The hub http://hub.example:${port} redirects to cdn.example, a ${kind} address (${address}), which is refused; check HF_ENDPOINT`,
    });
  }
});

test('a name that leads elsewhere the second time gains nothing', async (t) => {
  let asked = 0;
  const cdn = await serve(t, (_, res) => {
    asked++;
    res.writeHead(200, { connection: 'close' }).end('x');
  });
  const port = await serve(t, redirectTo(`http://cdn.example:${cdn}/file`));
  const client = clientAt(t, `http://hub.example:${port}`, { 'cdn.example': ['127.0.0.1', '192.168.0.1'] });
  const first = await client.get(`http://hub.example:${port}/x`, { signal: never });
  await first.body.resume().toArray();
  await assert.rejects(
    client.get(`http://hub.example:${port}/x`, { signal: never }),
    /private address \(192\.168\.0\.1\), which is refused/,
  );
  assert.equal(asked, 1);
});

test('an endpoint that is itself on loopback may redirect there', async (t) => {
  const cdn = await serve(t, (_, res) => res.end('x'));
  const port = await serve(t, redirectTo(`http://localhost:${cdn}/file`));
  const client = clientAt(t, `http://127.0.0.1:${port}`);
  const response = await client.get(`http://127.0.0.1:${port}/x`, { signal: never });
  assert.equal(response.status, 200);
  response.body.destroy();
});

test('redirects in a circle, and to what is no web address, end', async (t) => {
  const circle = await serve(t, (_, res) => res.writeHead(302, { location: '/again' }).end());
  await assert.rejects(
    clientAt(t, `http://127.0.0.1:${circle}`).get(`http://127.0.0.1:${circle}/`, { signal: never }),
    /redirects in a circle/,
  );
  for (const to of ['ftp://x/y', 'file:///etc/passwd', 'http://[', 'javascript:1']) {
    const port = await serve(t, redirectTo(to));
    await assert.rejects(clientAt(t, `http://127.0.0.1:${port}`).get(`http://127.0.0.1:${port}/x`, { signal: never }), /no web address/);
  }
});

test('what a redirect says of users and passwords is not sent', async (t) => {
  const seen: (string | undefined)[] = [];
  const cdn = await serve(t, (req, res) => {
    seen.push(req.headers.authorization);
    res.end('x');
  });
  const port = await serve(t, redirectTo(`http://user:pass@127.0.0.1:${cdn}/file`));
  const response = await clientAt(t, `http://127.0.0.1:${port}`).get(`http://127.0.0.1:${port}/x`, { signal: never });
  response.body.destroy();
  assert.deepEqual(seen, [undefined]);
});
