/** A daemon that a service manager hands its sockets: systemd-socket-activate where it is installed, else what it does, done by a shell. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, renameSync, statSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { connect } from '../../rpc/client/node.js';
import { privateEnv } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { rawRequest } from '../helpers/wire/raw-http.js';

const main = fileURLToPath(new URL('../../daemon/cli/main.js', import.meta.url));
const serve = [process.execPath, main, 'serve', '--set', 'inference.threads=2'];
const started: ChildProcess[] = [];
after(() => {
  for (const child of started) child.kill('SIGKILL');
});

function start(program: string, args: readonly string[], env: NodeJS.ProcessEnv, stdio: readonly number[] = []) {
  const child = spawn(program, [...args], { env, stdio: ['ignore', 'pipe', 'pipe', ...stdio] });
  started.push(child);
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const ended = once(child, 'close').then(([code]) => code as number | null);
  return { child, said: () => text, ended };
}

function cli(args: readonly string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [main, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const out = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (out.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (out.stderr += chunk.toString()));
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...out })));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

test('a socket that others can reach is refused where nobody shows who he is', async () => {
  const handed = createServer().listen(0, '0.0.0.0');
  await once(handed, 'listening');
  const { fd } = (handed as typeof handed & { _handle: { fd: number } })._handle;
  const passing = ['-c', 'LISTEN_PID=$$ exec "$@"', 'sh', ...serve];
  const open = start('sh', passing, { ...privateEnv(), LISTEN_FDS: '1', LISTEN_FDNAMES: 'inferd' }, [fd]);
  assert.equal(await open.ended, 78);
  assert.match(
    open.said(),
    /inferd: The socket at 0\.0\.0\.0:\d+ can be reached by others and auth\.mode is "none"; set auth\.mode = "token"\n/,
  );
  const guarded = start('sh', [...passing, '--set', 'auth.mode=token'], { ...privateEnv(), LISTEN_FDS: '1' }, [fd]);
  await eventually('the daemon is ready', () => guarded.said().includes('is ready'));
  handed.close();
  guarded.child.kill('SIGTERM');
  assert.equal(await guarded.ended, 0);
});

test('with a Unix socket alone the command line and the client find the daemon, whatever its folder is called', async () => {
  const env = privateEnv();
  const folder = join(tempFolder(), 'a b:c%20');
  mkdirSync(folder);
  const path = join(folder, 's');
  const handed = createServer().listen(path);
  await once(handed, 'listening');
  const { fd } = (handed as typeof handed & { _handle: { fd: number } })._handle;
  const daemon = start('sh', ['-c', 'LISTEN_PID=$$ exec "$@"', 'sh', ...serve], { ...env, LISTEN_FDS: '1' }, [fd]);
  await eventually('the daemon is ready', () => daemon.said().includes('is ready'));
  // The manager would not accept; ours must stop to, and leave the file where it is.
  renameSync(path, `${path}.kept`);
  handed.close();
  renameSync(`${path}.kept`, path);
  const status = await cli(['status'], env);
  assert.equal(status.code, 0, status.stderr);
  assert.match(status.stdout, /at ws\+unix:/);
  assert.equal((await cli(['run', 'What is 123 + 456?'], env)).stdout, '123 + 456 = 579\n');
  const client = await connect({ env });
  assert.equal((await client.call('ping', {})) !== undefined, true);
  await client.close();
  const stop = await cli(['stop'], env);
  assert.equal(stop.code, 0, stop.stderr);
  assert.equal(await daemon.ended, 0);
});

if (spawnSync('systemd-socket-activate', ['--version']).status === 0) {
  test('systemd starts the daemon at the first connection, which is answered, and hands the same addresses to the next daemon', async () => {
    const env = privateEnv();
    const path = join(tempFolder(), 's');
    const port = await freePort();
    const listen = ['-l', `127.0.0.1:${port}`, '-l', path, '--fdname=inferd:inferd', '-E', 'HOME', '-E', 'XDG_RUNTIME_DIR'];
    for (const at of [port, path]) {
      const activated = start('systemd-socket-activate', [...listen, ...serve], env);
      await eventually('systemd listens', () => activated.said().includes(`Listening on ${path}`));
      const reply = await rawRequest(at, ['GET /version HTTP/1.1', 'Host: localhost', 'Connection: close']);
      assert.equal(reply.status, 200);
      await eventually('the daemon is ready', () => activated.said().includes('is ready'));
      assert.match(activated.said(), new RegExp(`is ready: demo at ws://127\\.0\\.0\\.1:${port} .* and ${path}\n`));
      assert.equal((await cli(['status'], env)).code, 0);
      for (const each of [port, path])
        assert.equal((await rawRequest(each, ['GET /ready HTTP/1.1', 'Host: localhost', 'Connection: close'])).status, 200);
      activated.child.kill('SIGTERM');
      assert.equal(await activated.ended, 0);
      assert.ok(statSync(path).isSocket(), 'the file is the manager’s to remove');
    }
  });
}
