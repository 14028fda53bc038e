/** Listeners: ports, Unix sockets, and sockets that a service manager hands over. */
import assert from 'node:assert/strict';
import { type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createNetServer, type Server as NetServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openListeners, passedFds } from '../../../daemon/front/listen.js';
import { StartError } from '../../../daemon/start-error.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { testConfig } from '../../helpers/test-config.js';
import { rawRequest } from '../../helpers/wire/raw-http.js';

const freshPath = () => join(tempFolder(), 's');
const make = () => createServer((_, response) => response.end('here'));
const server = (changes: Parameters<typeof testConfig>[0]) => testConfig(changes).server;

test('port 0 takes a free port, and a port in use is a clear error', async () => {
  const first = await openListeners(server({ server: { port: 0 } }), make, {});
  assert.equal(first.host, '127.0.0.1');
  assert.ok((first.port ?? 0) > 0);
  const again = openListeners(server({ server: { port: first.port ?? 0 } }), make, {});
  await assert.rejects(
    again,
    (e) => e instanceof StartError && e.exitCode === 69 && e.message.includes(`127.0.0.1:${first.port}`) && /in use/.test(e.message),
  );
  for (const s of first.servers) s.close();
});

test('a Unix socket has mode 0600, replaces one that nobody answers on, and nothing else', async () => {
  const path = freshPath();
  const config = server({ server: { port: 0, unix_socket: path } });
  const killed = spawn(process.execPath, [
    '-e',
    `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.stdout.write('up'))`,
  ]);
  await once(killed.stdout, 'data');
  await assert.rejects(openListeners(config, make, {}), /another program listens/);
  killed.kill('SIGKILL');
  await once(killed, 'exit');
  assert.ok(existsSync(path), 'the killed one left its file');
  const opened = await openListeners(config, make, {});
  assert.equal(opened.unixSocket, path);
  assert.equal(opened.servers.length, 2);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal((await rawRequest(path, ['GET / HTTP/1.1', 'Host: x', 'Connection: close'])).status, 200);
  for (const s of opened.servers) s.close();

  const file = freshPath();
  writeFileSync(file, 'precious');
  await assert.rejects(openListeners(server({ server: { port: 0, unix_socket: file } }), make, {}), /is not a socket/);
  assert.ok(existsSync(file));
});

test('descriptors are taken only when they are meant for this process, and children do not see the variables', () => {
  const mine = { LISTEN_PID: String(process.pid), LISTEN_FDS: '2', LISTEN_FDNAMES: 'a:b' };
  assert.deepEqual(passedFds(mine), [3, 4]);
  assert.deepEqual(mine, {});
  assert.deepEqual(passedFds({ LISTEN_PID: '1', LISTEN_FDS: '2' }), []);
  assert.deepEqual(passedFds({ LISTEN_PID: String(process.pid), LISTEN_FDS: 'x' }), []);
  assert.deepEqual(passedFds({}), []);
});

test('a socket handed over by the parent is listened on instead of the configured port', async () => {
  const handed = createNetServer();
  handed.listen(0, '127.0.0.1');
  await once(handed, 'listening');
  const { port } = handed.address() as AddressInfo;
  const fd = (handed as NetServer & { _handle: { fd: number } })._handle.fd;
  const script = `
    import { createServer } from 'node:http';
    const { openListeners } = await import(${JSON.stringify(new URL('../../../daemon/front/listen.js', import.meta.url).href)});
    const env = { LISTEN_PID: String(process.pid), LISTEN_FDS: '1' };
    const opened = await openListeners({ host: '127.0.0.1', port: 1, unix_socket: null }, () => createServer((_, r) => r.end('child')), env);
    console.log(JSON.stringify([opened.host, opened.port]));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    stdio: ['ignore', 'pipe', 'inherit', fd],
  } satisfies SpawnOptions);
  assert.ok(child.stdout);
  try {
    const [said] = (await once(child.stdout, 'data')) as [Buffer];
    assert.deepEqual(JSON.parse(said.toString()), ['127.0.0.1', port]);
    handed.close();
    const reply = await rawRequest(port, ['GET / HTTP/1.1', 'Host: x', 'Connection: close']);
    assert.equal(reply.status, 200);
  } finally {
    child.kill('SIGKILL');
  }
});
