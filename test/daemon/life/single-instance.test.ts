/** One daemon per runtime folder: locks, left-over files, and the published file. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { type DaemonFile, daemonFilePath, inferdPaths, readDaemonFile } from '../../../config/paths.js';
import { acquireInstance, answers, prepareRuntimeDir } from '../../../daemon/life/single-instance.js';
import { StartError } from '../../../daemon/start-error.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const freshEnv = (name = 'run') => ({ XDG_RUNTIME_DIR: join(tempFolder(), name) });
const facts: DaemonFile = {
  pid: process.pid,
  startedAt: new Date(0).toISOString(),
  version: '1.2.3',
  address: 'ws://127.0.0.1:1',
  http: 'http://127.0.0.1:1',
  unixSocket: null,
  tokenFile: null,
};
const alreadyRunning = (error: unknown) => error instanceof StartError && error.exitCode === 69 && /already running/.test(error.message);

test('a second daemon of the same folder is refused and told where the first one is', async () => {
  const env = freshEnv();
  const first = await acquireInstance(env);
  await assert.rejects(acquireInstance(env), alreadyRunning);
  first.publish(facts);
  await assert.rejects(acquireInstance(env), /already running at ws:\/\/127\.0\.0\.1:1; use it, or stop it first with "inferd stop"\./);
  first.release();
  (await acquireInstance(env)).release();
});

test('of many that start at once exactly one wins', async () => {
  const env = freshEnv();
  const results = await Promise.allSettled(Array.from({ length: 12 }, () => acquireInstance(env)));
  const winners = results.filter((r) => r.status === 'fulfilled');
  assert.equal(winners.length, 1);
  for (const r of results) if (r.status === 'rejected') assert.ok(alreadyRunning(r.reason));
  for (const w of winners) w.value.release();
});

/** A process that holds the lock like a daemon does and is then killed, so that its socket file stays behind. */
async function leaveStaleSocket(path: string): Promise<void> {
  const script = 'require("node:net").createServer().listen(process.argv[1], () => process.stdout.write("up"))';
  const child = spawn(process.execPath, ['-e', script, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}

test('the lock of a killed daemon does not block the next one, whoever has its pid now', async () => {
  const env = freshEnv();
  const { runtimeDir } = inferdPaths(env);
  prepareRuntimeDir(runtimeDir);
  await leaveStaleSocket(join(runtimeDir, 'instance.sock'));
  // The pid in the left-over file belongs to a living process: this one.
  writeFileSync(daemonFilePath(env), JSON.stringify(facts));
  assert.equal(await answers(join(runtimeDir, 'instance.sock')), false);
  const results = await Promise.allSettled(Array.from({ length: 6 }, () => acquireInstance(env)));
  const winners = results.filter((r) => r.status === 'fulfilled');
  assert.equal(winners.length, 1, 'also when several try to take it over');
  winners[0]!.value.publish({ ...facts, version: '2.0.0' });
  assert.equal(readDaemonFile(env)?.version, '2.0.0');
  winners[0]!.value.release();
});

test('a guard file left by a crash in the middle of a take-over is removed after a while', async () => {
  const env = freshEnv();
  const { runtimeDir } = inferdPaths(env);
  prepareRuntimeDir(runtimeDir);
  await leaveStaleSocket(join(runtimeDir, 'instance.sock'));
  const guard = join(runtimeDir, 'instance.lock');
  writeFileSync(guard, '');
  utimesSync(guard, new Date(0), new Date(0));
  (await acquireInstance(env)).release();
  assert.equal(existsSync(guard), false);
});

test('daemon.json is private, complete, and gone after release, unless another daemon has written it', async () => {
  const env = freshEnv();
  const instance = await acquireInstance(env);
  instance.publish(facts);
  assert.deepEqual(readDaemonFile(env), facts);
  const { runtimeDir } = inferdPaths(env);
  assert.equal(statSync(daemonFilePath(env)).mode & 0o777, 0o600);
  assert.equal(statSync(runtimeDir).mode & 0o777, 0o700);
  assert.equal(statSync(join(runtimeDir, 'instance.sock')).mode & 0o777, 0o600);
  assert.deepEqual(
    readdirSync(runtimeDir).filter((f) => f.endsWith('.tmp')),
    [],
  );
  instance.release();
  assert.equal(existsSync(daemonFilePath(env)), false);
  instance.release();

  const second = await acquireInstance(env);
  second.publish(facts);
  writeFileSync(daemonFilePath(env), '{"pid":1}');
  second.release();
  assert.equal(readFileSync(daemonFilePath(env), 'utf8'), '{"pid":1}');
});

test('a runtime folder that is open to others is closed, and one that is no folder is refused', () => {
  const dir = join(tempFolder(), 'run');
  mkdirSync(dir);
  chmodSync(dir, 0o755);
  prepareRuntimeDir(dir);
  assert.equal(statSync(dir).mode & 0o777, 0o700);
  const link = `${dir}-link`;
  symlinkSync(dir, link);
  assert.throws(() => prepareRuntimeDir(link), /is not a folder/);
  const file = `${dir}-file`;
  writeFileSync(file, '');
  assert.throws(() => prepareRuntimeDir(file), StartError);
});

test('a folder with a path too long for a socket works like any other', async () => {
  const env = freshEnv('x'.repeat(120));
  const first = await acquireInstance(env);
  await assert.rejects(acquireInstance(env), alreadyRunning);
  first.release();
  (await acquireInstance(env)).release();
});

test('a living socket answers, a missing one does not', async () => {
  const path = join(tempFolder(), 's');
  assert.equal(await answers(path), false);
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(path, resolve));
  assert.equal(await answers(path), true);
  server.close();
});
