/** A daemon in a process of its own whose engine hangs, in JavaScript or in a native call that nothing interrupts. */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { daemonFilePath } from '../../config/paths.js';
import { privateEnv } from '../helpers/daemon/daemon.js';
import { type FakeNativeEngineSettings, fakeNativeEngineModule } from '../helpers/engine/fake-native-engine.js';
import { eventually, inTime } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { RpcSocket } from '../helpers/wire/rpc-socket.js';

const host = fileURLToPath(new URL('./daemon-host.js', import.meta.url));

interface Running {
  readonly child: ChildProcess;
  readonly ws: string;
  readonly http: string;
  readonly env: NodeJS.ProcessEnv;
  readonly exit: Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>;
  log(): string;
}

async function serve(settings: FakeNativeEngineSettings, sets: readonly string[] = []): Promise<Running> {
  const executorModule = fakeNativeEngineModule({ vocab: 4096, stepMs: 2, ...settings });
  const env = { ...privateEnv(), INFERD_TEST_ENGINE: executorModule };
  const child = spawn(process.execPath, [host, 'server.port=0', 'scheduler.hang_timeout_s=1', ...sets], { env });
  let out = '';
  let log = '';
  child.stdout.on('data', (part) => {
    out += part;
  });
  child.stderr.on('data', (part) => {
    log += part;
  });
  const exit = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  await eventually('the daemon is ready', () => {
    assert.equal(child.exitCode, null, log);
    return out.includes('\n');
  });
  const { ws, http } = JSON.parse(out) as { ws: string; http: string };
  return { child, ws, http, env, exit, log: () => log };
}

/** A FIFO without a writer: who opens it to read is held in the kernel. */
function deadEnd(): string {
  const path = join(tempFolder(), 'dead-end');
  execFileSync('mkfifo', [path]);
  return path;
}

/** Starts `count` requests; of all but the first four, which run, it is only known that they were sent. */
async function ask(socket: RpcSocket, count: number): Promise<readonly (number | string)[]> {
  const params = { prompt: [1, 2, 3], max_tokens: 100, ignore_eos: true, temperature: 0, stream: true };
  const ids = Array.from({ length: count }, () => socket.send('completions.create', params));
  for (const id of ids.slice(0, 4)) await socket.event(id, 'delta');
  return ids;
}

async function assertEachEndsOnce(socket: RpcSocket, ids: readonly (number | string)[]): Promise<void> {
  for (const id of ids) {
    const { error } = await socket.reply(id);
    assert.equal(error?.code, -32012, JSON.stringify(error));
    assert.equal(error.data?.['retriable'], true);
  }
  const replies = socket.log.filter((m) => m.id !== undefined && ids.includes(m.id ?? ''));
  assert.equal(replies.length, ids.length, 'one response each');
}

const status = async (daemon: Running, path: string): Promise<number> => (await fetch(`${daemon.http}${path}`)).status;

test('a step that does not end is noticed: every request ends once, and a fresh engine serves', async () => {
  const daemon = await serve({ hangStep: 30 }, ['scheduler.max_num_sequences=4']);
  const socket = await RpcSocket.open(daemon.ws);
  await assertEachEndsOnce(socket, await ask(socket, 10));
  assert.match(daemon.log(), /"reason":"a step does not end"/);
  await eventually('it is ready again', async () => (await status(daemon, '/ready')) === 200);
  const answer = await socket.call('completions.create', { prompt: [1, 2, 3], max_tokens: 5, ignore_eos: true });
  assert.equal(answer.usage?.completion_tokens, 5);
  assert.equal(await status(daemon, '/health'), 200);
  daemon.child.kill('SIGTERM');
  assert.deepEqual(await inTime('the daemon ends', daemon.exit), [0, null]);
});

for (const [device, code] of [
  ['cpu', 70],
  ['cuda', 71],
] as const) {
  test(`a step that hangs in native code of ${device} ends the process with ${code}, after every request was answered`, async () => {
    const sets = [`inference.device=${device}`, 'cache.num_gpu_blocks_override=512', 'scheduler.max_num_sequences=4'];
    const daemon = await serve({ hangStep: 30, hangFile: deadEnd() }, sets);
    const socket = await RpcSocket.open(daemon.ws);
    const ids = await ask(socket, 10);
    await assertEachEndsOnce(socket, ids);
    assert.equal(await status(daemon, '/ready'), 503);
    assert.equal(await status(daemon, '/health'), 503);
    assert.deepEqual(await inTime('the daemon ends', daemon.exit), [code, null]);
    assert.equal(existsSync(daemonFilePath(daemon.env)), false);
  });
}

test('an engine that is given up while its step runs on ends the process, and nothing starts in its place', async () => {
  const daemon = await serve({ hangStep: 30, stuck: true }, ['scheduler.max_num_sequences=4']);
  const socket = await RpcSocket.open(daemon.ws);
  await assertEachEndsOnce(socket, await ask(socket, 10));
  assert.deepEqual(await inTime('the daemon ends', daemon.exit), [70, null]);
  assert.doesNotMatch(daemon.log(), /"msg":"restarting"|left behind/);
});

test('a second SIGTERM ends a process whose engine hangs at once', async () => {
  const daemon = await serve({ hangStep: 30, hangFile: deadEnd() }, ['scheduler.hang_timeout_s=3600']);
  const socket = await RpcSocket.open(daemon.ws);
  await ask(socket, 4);
  daemon.child.kill('SIGTERM');
  await socket.until((m) => m.method === '$/shutdown');
  const began = performance.now();
  daemon.child.kill('SIGTERM');
  assert.deepEqual(await inTime('the daemon ends', daemon.exit), [143, null]);
  assert.ok(performance.now() - began < 10_000, 'it did not wait for the drain or the engine');
  assert.equal(existsSync(daemonFilePath(daemon.env)), false);
});

test('one SIGTERM ends it as well, with 70, once the limits are over', async () => {
  const daemon = await serve({ hangStep: 30, hangFile: deadEnd() }, ['scheduler.hang_timeout_s=3600', 'server.drain_timeout_s=0.2']);
  const socket = await RpcSocket.open(daemon.ws);
  const ids = await ask(socket, 4);
  daemon.child.kill('SIGTERM');
  for (const id of ids) assert.equal((await socket.reply(id)).error?.code, -32009);
  assert.deepEqual(await inTime('the daemon ends', daemon.exit), [70, null]);
});

test('a process that was stopped for longer than the limit goes on with its requests', async () => {
  const daemon = await serve({ stepMs: 20 });
  const socket = await RpcSocket.open(daemon.ws);
  const ids = await ask(socket, 4);
  daemon.child.kill('SIGSTOP');
  await new Promise((resolve) => setTimeout(resolve, 2500));
  daemon.child.kill('SIGCONT');
  for (const id of ids) assert.equal((await socket.reply(id)).result?.usage?.completion_tokens, 100);
  daemon.child.kill('SIGTERM');
  assert.deepEqual(await inTime('the daemon ends', daemon.exit), [0, null]);
});
