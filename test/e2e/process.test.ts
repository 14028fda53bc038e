/** The daemon as a process of its own: signals, exit codes, and what a killed one leaves behind. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { daemonFilePath, readDaemonFile } from '../../config/paths.js';
import { privateEnv } from '../helpers/daemon/daemon.js';
import { checkTrace, readTrace, spans } from '../helpers/daemon/profile.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { RpcSocket } from '../helpers/wire/rpc-socket.js';

const cli = fileURLToPath(new URL('../../daemon/cli/main.js', import.meta.url));

interface Running {
  readonly child: ChildProcess;
  readonly ws: string;
  readonly http: string;
  readonly exit: Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>;
  stderr(): string;
}

function launch(env: NodeJS.ProcessEnv, sets: readonly string[] = [], flags: readonly string[] = []) {
  const options = ['server.port=0', 'inference.threads=2', ...sets].flatMap((set) => ['--set', set]);
  const child = spawn(process.execPath, [cli, 'serve', '--json', ...flags, ...options], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (part) => {
    stdout += part;
  });
  child.stderr.on('data', (part) => {
    stderr += part;
  });
  const exit = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  return { child, exit, stdout: () => stdout, stderr: () => stderr };
}

async function serve(env: NodeJS.ProcessEnv, sets?: readonly string[], flags?: readonly string[]): Promise<Running> {
  const { child, exit, stdout, stderr } = launch(env, sets, flags);
  await eventually('the daemon is ready', () => {
    assert.equal(child.exitCode, null, `the daemon ended early: ${stderr()}`);
    return stdout().includes('"event":"ready"');
  });
  const file = readDaemonFile(env);
  assert.equal(file?.pid, child.pid);
  return { child, ws: file?.address ?? '', http: file?.http ?? '', exit, stderr };
}

const endless = { messages: [{ role: 'user', content: 'Count.' }], ignore_eos: true, max_tokens: 3500, stream: true };

test('SIGTERM lets a running request finish, then the process exits with 0 and leaves no file', async () => {
  const env = privateEnv();
  const daemon = await serve(env);
  const socket = await RpcSocket.open(daemon.ws);
  const id = socket.send('chat.completions.create', { ...endless, max_tokens: 200 });
  await socket.event(id, 'delta');
  daemon.child.kill('SIGTERM');
  await socket.until((m) => m.method === '$/shutdown');
  const reply = await socket.reply(id);
  assert.equal(reply.result?.usage?.completion_tokens, 200);
  assert.deepEqual(await daemon.exit, [0, null]);
  assert.equal(existsSync(daemonFilePath(env)), false);
  for (const line of daemon.stderr().trim().split('\n')) assert.doesNotThrow(() => JSON.parse(line), line);
  assert.equal(daemon.stderr().includes('Count.'), false, 'no prompt in the log');
});

test('a request that outlives the drain ends with -32009; a second signal does not wait for it', async () => {
  const env = privateEnv();
  const patient = await serve(env, ['server.drain_timeout_s=0.3']);
  const socket = await RpcSocket.open(patient.ws);
  const id = socket.send('chat.completions.create', endless);
  await socket.event(id, 'delta');
  patient.child.kill('SIGINT');
  assert.equal((await socket.reply(id)).error?.code, -32009);
  assert.deepEqual(await patient.exit, [0, null]);

  const hasty = await serve(env);
  const other = await RpcSocket.open(hasty.ws);
  const running = other.send('chat.completions.create', endless);
  await other.event(running, 'delta');
  hasty.child.kill('SIGTERM');
  await other.until((m) => m.method === '$/shutdown');
  hasty.child.kill('SIGTERM');
  assert.deepEqual(await hasty.exit, [143, null]);
  assert.equal(existsSync(daemonFilePath(env)), false);
});

test('serve --profile records from the start, and SIGTERM in the middle of a request does not lose the file', async () => {
  const env = privateEnv();
  const folder = tempFolder();
  const daemon = await serve(env, ['server.drain_timeout_s=0.3'], ['--profile', folder]);
  const socket = await RpcSocket.open(daemon.ws);
  const id = socket.send('chat.completions.create', endless);
  await socket.event(id, 'delta');
  daemon.child.kill('SIGTERM');
  assert.deepEqual(await daemon.exit, [0, null]);
  const files = readdirSync(join(folder, 'tp0'));
  assert.equal(files.length, 1, daemon.stderr());
  const trace = readTrace(join(folder, 'tp0', files[0] ?? ''));
  checkTrace(trace);
  assert.ok(spans(trace, 'decode step').length > 0 && spans(trace, 'prompt step').length > 0);
  assert.equal(trace.otherData['ended_by'], 'the daemon stops');
});

test('serve --profile with a folder that cannot be written ends with 78 and says so', async () => {
  const { exit, stderr } = launch(privateEnv(), [], ['--profile', '/dev/null/profiles']);
  assert.deepEqual(await exit, [78, null]);
  assert.match(stderr(), /Profiles cannot be written to \/dev\/null\/profiles\/tp0 \(ENOTDIR\); change profile\.directory/);
});

test('a second daemon is refused with 69; after SIGKILL the next one takes over what was left', async () => {
  const env = privateEnv();
  const first = await serve(env);
  const second = launch(env);
  assert.deepEqual(await second.exit, [69, null]);
  assert.match(second.stderr(), /already running at ws:\/\/127\.0\.0\.1:\d+/);
  assert.equal((await fetch(`${first.http}/health`)).status, 200);

  first.child.kill('SIGKILL');
  assert.deepEqual(await first.exit, [null, 'SIGKILL']);
  assert.equal(existsSync(daemonFilePath(env)), true, 'its file stayed behind');
  const next = await serve(env);
  assert.notEqual(next.http, first.http);
  const socket = await RpcSocket.open(next.ws);
  assert.ok(await socket.call('ping'));
  await socket.close();
  next.child.kill('SIGTERM');
  assert.deepEqual(await next.exit, [0, null]);
});

test('SIGTERM while the model loads ends the process with 0 and leaves no file', async () => {
  const env = privateEnv();
  const { child, exit } = launch(env);
  await eventually('the daemon publishes itself', () => existsSync(daemonFilePath(env)));
  child.kill('SIGTERM');
  assert.deepEqual(await exit, [0, null]);
  assert.equal(existsSync(daemonFilePath(env)), false);
});

test('SIGHUP does not end the daemon, and is logged', async () => {
  const daemon = await serve(privateEnv());
  daemon.child.kill('SIGHUP');
  await eventually('the reload is logged', () => daemon.stderr().includes('the configuration was reloaded'));
  assert.equal((await fetch(`${daemon.http}/health`)).status, 200);
  daemon.child.kill('SIGTERM');
  assert.deepEqual(await daemon.exit, [0, null]);
});
