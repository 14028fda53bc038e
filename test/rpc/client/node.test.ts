/** The Node client over real sockets: finding the daemon, the token, what it says when there is none. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { type DaemonFile, daemonFilePath } from '../../../config/paths.js';
import { ConnectError, ConnectionClosedError, connect } from '../../../rpc/client/node.js';
import { RpcConnection } from '../../../rpc/connection.js';
import { allScopes } from '../../../rpc/scope.js';
import { wireTo } from '../../helpers/wire/wire.js';
import { setup } from '../harness.js';

const home = mkdtempSync(join(tmpdir(), 'inferd-client-'));
const env = { HOME: home, XDG_RUNTIME_DIR: join(home, 'run') };
let headers: IncomingHttpHeaders = {};
let accept = true;
let url = '';

const { server } = setup();
const http = createServer();
const sockets = new WebSocketServer({ noServer: true });
http.on('upgrade', (request, socket, head) => {
  headers = request.headers;
  if (!accept) {
    socket.end('HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
    return;
  }
  sockets.handleUpgrade(request, socket, head, (ws) => {
    const wire = wireTo((data) => ws.send(data));
    const connection = new RpcConnection(server, wire, { encoding: 'json', scopes: allScopes });
    ws.on('message', (data: Buffer) => connection.receive(data));
    ws.on('close', () => connection.close());
  });
});

before(async () => {
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  url = `ws://127.0.0.1:${(http.address() as AddressInfo).port}`;
});
after(() => {
  for (const ws of sockets.clients) ws.terminate();
  http.close();
  rmSync(home, { recursive: true });
});

function publish(file: Partial<DaemonFile>): void {
  const full: DaemonFile = {
    pid: 1,
    startedAt: '2020-01-01T00:00:00Z',
    version: '0',
    address: url,
    http: '',
    unixSocket: null,
    tokenFile: null,
    ...file,
  };
  mkdirSync(dirname(daemonFilePath(env)), { recursive: true });
  writeFileSync(daemonFilePath(env), JSON.stringify(full));
}

describe('the Node client', () => {
  test('says how to start a daemon when none runs', async () => {
    await assert.rejects(connect({ env }), (e) => e instanceof ConnectError && e.message.includes('inferd serve'));
  });

  test('finds the daemon through daemon.json and shows its token', async () => {
    const tokenFile = join(home, 'token');
    writeFileSync(tokenFile, 'secret\n');
    publish({ tokenFile });
    const client = await connect({ env });
    assert.equal(headers.authorization, 'Bearer secret');
    const stream = await client.chat.completions.create({ messages: [{ role: 'user', content: 'über 😀' }], stream: true });
    let text = '';
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    assert.equal(text, 'You said: über 😀');
    await client.close();
    await assert.rejects(client.call('ping', {}), ConnectionClosedError);
  });

  test('takes a URL and a token instead', async () => {
    const client = await connect({ url: url.replace('ws:', 'http:'), token: 'mine', env });
    assert.equal(headers.authorization, 'Bearer mine');
    assert.deepEqual(await client.call('ping', {}), {});
    await client.close();
  });

  test('says so when the token is wrong or missing', async () => {
    accept = false;
    const says = (text: string) => (e: unknown) => e instanceof ConnectError && e.message.includes(text);
    await assert.rejects(connect({ url, token: 'old', env }), says('the one given is not right'));
    await assert.rejects(connect({ url, env }), says('Give it as token, or leave the url out'));
    accept = true;
  });

  test('says so when the address is none', async () => {
    for (const address of ['localhost:8765', 'foo', ''])
      await assert.rejects(
        connect({ url: address, env }),
        (e) => e instanceof ConnectError && /Write it like ws:\/\/127/.test(e.message),
        address,
      );
  });

  test('says so when the daemon that daemon.json names has died', async () => {
    publish({ pid: 4242, address: 'ws://127.0.0.1:1' });
    await assert.rejects(
      connect({ env }),
      (e) => e instanceof ConnectError && e.message.includes('4242') && e.message.includes('inferd serve'),
    );
  });

  test('says so when the token file cannot be read', async () => {
    publish({ tokenFile: join(home, 'nothing') });
    await assert.rejects(connect({ env }), (e) => e instanceof ConnectError && e.message.includes('ENOENT'));
  });
});
