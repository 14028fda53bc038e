/** Start and stop of the daemon around an engine that the test holds in its hand. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { silentLog } from '../../actors/runtime/log.js';
import { inferdPaths, readDaemonFile } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import { type Daemon, type DaemonOptions, startDaemon } from '../../daemon/daemon.js';
import { StartError } from '../../daemon/start-error.js';
import { systemdStandIn } from '../helpers/daemon/systemd-stand-in.js';
import { FakeEngineHandle, fakeModel } from '../helpers/engine/fake-engine-handle.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { testConfig } from '../helpers/test-config.js';
import { scrape } from '../helpers/wire/exposition.js';

type Changes = { readonly [S in keyof Config]?: Partial<Config[S]> };

const freshEnv = () => ({ XDG_RUNTIME_DIR: tempFolder() });
const options = (engine: FakeEngineHandle, env: NodeJS.ProcessEnv, changes: Changes = {}): DaemonOptions => ({
  config: testConfig({ ...changes, server: { port: 0, ...changes.server } }),
  model: fakeModel,
  log: silentLog,
  publish: true,
  signals: false,
  env,
  startEngine: engine.start,
});

/** Starts and waits until daemon.json is there, which is before the model is ready. */
async function opening(
  engine: FakeEngineHandle,
  env: NodeJS.ProcessEnv,
  changes?: Changes,
): Promise<{ started: Promise<Daemon>; http: string; ws: string }> {
  const started = startDaemon(options(engine, env, changes));
  started.catch(() => {});
  await eventually('the daemon publishes itself', () => readDaemonFile(env) !== null);
  const file = readDaemonFile(env);
  return { started, http: file?.http ?? '', ws: file?.address ?? '' };
}

async function running(changes?: Changes): Promise<{ daemon: Daemon; engine: FakeEngineHandle; env: NodeJS.ProcessEnv }> {
  const engine = new FakeEngineHandle();
  const env = freshEnv();
  const { started } = await opening(engine, env, changes);
  engine.becomeReady();
  return { daemon: await started, engine, env };
}

interface Reply {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly data?: Record<string, unknown> };
}

/** A WebSocket that keeps everything it is sent. */
async function client(daemon: { ws: string }, protocols: string[] = [], extra: object = {}) {
  const ws = new WebSocket(`${daemon.ws}/`, protocols, extra);
  const got: Reply[] = [];
  ws.on('message', (data) => got.push(JSON.parse(String(data)) as Reply));
  ws.on('error', () => {});
  const closed = new Promise<number>((resolve) => ws.once('close', resolve));
  await once(ws, 'open');
  return {
    ws,
    got,
    closed,
    ask: (id: number, method: string, params: object = {}) => ws.send(JSON.stringify({ jsonrpc: '2.0', id, method, params })),
    async until(match: (reply: Reply) => boolean): Promise<Reply> {
      await eventually('a message comes', () => got.some(match));
      return got.find(match)!; // there is one now
    },
  };
}

const chat = { messages: [{ role: 'user', content: 'hi' }], max_tokens: 4 };
const httpStatus = async (url: string) => {
  const reply = await fetch(url);
  return [reply.status, (await reply.json()) as unknown] as const;
};

test('while the model loads the probes say 503 and work is refused with a time to retry; then both work', async () => {
  const engine = new FakeEngineHandle();
  const { started, http, ws } = await opening(engine, freshEnv());
  assert.deepEqual(await httpStatus(`${http}/health`), [503, { status: 'starting' }]);
  assert.deepEqual(await httpStatus(`${http}/ready`), [503, { status: 'starting' }]);
  assert.equal((await httpStatus(`${http}/version`))[0], 200);
  const early = await client({ ws });
  early.ask(1, 'chat.completions.create', chat);
  const refused = await early.until((m) => m.id === 1);
  assert.equal(refused.error?.code, -32003);
  assert.equal(typeof refused.error?.data?.['retry_after_ms'], 'number');

  engine.becomeReady();
  const daemon = await started;
  assert.equal(daemon.addresses.ws, ws);
  assert.deepEqual(await httpStatus(`${http}/health`), [200, { status: 'ok' }]);
  early.ask(2, 'chat.completions.create', chat);
  await eventually('the engine has the request', () => engine.open.size > 0);
  engine.finishAll();
  assert.ok((await early.until((m) => m.id === 2)).result);
  await daemon.stop('test');
  assert.equal(await early.closed, 1001);
});

test('the daemon publishes itself, is the only one, and leaves nothing behind', async () => {
  const { daemon, engine, env } = await running();
  const file = readDaemonFile(env);
  assert.deepEqual(file, {
    pid: process.pid,
    startedAt: file?.startedAt,
    version: file?.version,
    address: daemon.addresses.ws,
    http: daemon.addresses.http,
    unixSocket: null,
    tokenFile: null,
  });
  await assert.rejects(startDaemon(options(new FakeEngineHandle(), env)), (e) => e instanceof StartError && e.exitCode === 69);
  assert.equal((await fetch(`${daemon.addresses.http}/health`)).status, 200, 'the first one is not harmed');
  await daemon.stop('test');
  assert.equal(await daemon.stopped, 0);
  assert.equal(engine.stops, 1);
  assert.equal(readDaemonFile(env), null);
  await assert.rejects(fetch(`${daemon.addresses.http}/health`));
});

test('a stop lets the running request finish, refuses new ones, and closes with 1001', async () => {
  const { daemon, engine } = await running();
  const one = await client(daemon.addresses);
  one.ask(1, 'chat.completions.create', chat);
  await eventually('the engine has the request', () => engine.open.size > 0);
  const stopping = daemon.stop('test');
  const told = await one.until((m) => m.method === '$/shutdown');
  assert.equal(told.params?.['deadline_ms'], 30_000);
  one.ask(2, 'chat.completions.create', chat);
  assert.equal((await one.until((m) => m.id === 2)).error?.code, -32009);
  await assert.rejects(fetch(`${daemon.addresses.http}/ready`), 'no new connections');
  assert.equal(
    one.got.some((m) => m.id === 1),
    false,
  );
  engine.finishAll();
  await stopping;
  assert.equal(await one.closed, 1001);
  assert.equal(one.got.filter((m) => m.id === 1).length, 1);
  assert.ok(one.got.find((m) => m.id === 1)?.result);
  assert.equal(await daemon.stopped, 0);
});

test('a request still running at the deadline ends with -32009', async () => {
  const { daemon, engine } = await running({ server: { drain_timeout_s: 0.2 } });
  const one = await client(daemon.addresses);
  one.ask(1, 'chat.completions.create', { ...chat, stream: true });
  await eventually('the engine has the request', () => engine.open.size > 0);
  await daemon.stop('test');
  assert.equal(await one.closed, 1001);
  assert.equal(one.got.find((m) => m.id === 1)?.error?.code, -32009);
  assert.equal(await daemon.stopped, 0);
});

test('daemon.drain stops the daemon and is answered', async () => {
  const { daemon } = await running();
  const one = await client(daemon.addresses);
  one.ask(1, 'daemon.drain');
  assert.ok((await one.until((m) => m.id === 1)).result);
  assert.equal(await daemon.stopped, 0);
  assert.equal(await one.closed, 1001);
});

test('the watchdog is fed while the engine works or restarts, and not while it hangs', async () => {
  const { env, said } = systemdStandIn();
  const engine = new FakeEngineHandle();
  const { started } = await opening(engine, { ...freshEnv(), ...env });
  engine.becomeReady();
  const daemon = await started;
  const fed = () => said().split('WATCHDOG=1|').length - 1;
  const more = async (what: string) => {
    const before = fed();
    await eventually(what, () => fed() > before + 1); // one may have been under way
  };
  await more('it is fed');
  engine.state = 'restarting';
  await more('it is fed on');
  engine.healthy = false;
  engine.state = 'ready';
  await sleep(300);
  const before = fed();
  await sleep(300);
  assert.equal(fed(), before);
  await daemon.stop('the test is over');
});

for (const [what, fatal, code] of [
  ['an engine that gives up ends the daemon with 70', false, 70],
  ['a GPU error that spoils the process ends the daemon with 71', true, 71],
] as const)
  test(what, async () => {
    const { daemon, engine, env } = await running();
    const one = await client(daemon.addresses);
    engine.giveUp('4 restarts in 60 s', fatal);
    assert.equal(await daemon.stopped, code);
    await one.closed;
    assert.equal(readDaemonFile(env), null);
  });

test('a start that fails, or is stopped half-way, leaves lock and port free', async () => {
  const env = freshEnv();
  const broken = new FakeEngineHandle();
  const first = await opening(broken, env);
  broken.failToStart('The weights are not there.');
  await assert.rejects(first.started, (e) => e instanceof StartError && e.exitCode === 70 && /weights are not there/.test(e.message));
  assert.equal(readDaemonFile(env), null);
  await assert.rejects(fetch(`${first.http}/health`));
  assert.equal(broken.stops, 1);

  const engine = new FakeEngineHandle();
  const second = await opening(engine, env);
  const one = await client(second);
  one.ask(1, 'daemon.drain');
  await assert.rejects(second.started, (e) => e instanceof StartError && e.exitCode === 0 && /before it was ready/.test(e.message));
  assert.equal(await one.closed, 1001);
  assert.equal(readDaemonFile(env), null);
});

test('in mode token the daemon makes the token, and only who shows it gets in', async () => {
  const { daemon, env } = await running({ auth: { mode: 'token' } });
  const file = join(inferdPaths(env).runtimeDir, 'token');
  assert.equal(readDaemonFile(env)?.tokenFile, file);
  assert.equal(readFileSync(file, 'utf8').trim(), daemon.token);
  await assert.rejects(client(daemon.addresses));
  assert.equal((await fetch(`${daemon.addresses.http}/openrpc.json`)).status, 401);
  const headers = { authorization: `Bearer ${daemon.token}` };
  const native = await client(daemon.addresses, [], { headers });
  native.ask(1, 'ping');
  assert.deepEqual((await native.until((m) => m.id === 1)).result, {});
  const page = await client(daemon.addresses, ['jsonrpc', `bearer.${daemon.token}`]);
  page.ask(1, 'ping');
  await page.until((m) => m.id === 1);
  assert.equal((await fetch(`${daemon.addresses.http}/openrpc.json`, { headers })).status, 200);
  await daemon.stop('test');
});

test('figures need the token where all else does, unless metrics.open', async () => {
  for (const open of [false, true]) {
    const { daemon } = await running({ auth: { mode: 'token' }, metrics: { open } });
    const { http } = daemon.addresses;
    assert.equal((await fetch(`${http}/metrics`)).status, open ? 200 : 401);
    const figures = await scrape(http, { authorization: `Bearer ${daemon.token}` });
    assert.equal(figures.value('vllm:num_requests_running'), 0);
    assert.equal((await fetch(`${http}/v1/models`)).status, 401, 'nothing else is open');
    await daemon.stop('test');
  }
});

test('a Unix socket serves the same', async () => {
  const env = freshEnv();
  const path = join(env.XDG_RUNTIME_DIR, 'u.sock');
  const engine = new FakeEngineHandle();
  const { started } = await opening(engine, env, { server: { unix_socket: path } });
  engine.becomeReady();
  const daemon = await started;
  assert.equal(daemon.addresses.unixSocket, path);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const one = await client({ ws: `ws+unix:${path}:` });
  one.ask(1, 'ping');
  await one.until((m) => m.id === 1);
  await daemon.stop('test');
  assert.equal(existsSync(path), false);
});

test('every HTTP route that rpc.discover tells of is served', async () => {
  const { daemon } = await running();
  const { http } = daemon.addresses;
  const document: unknown = await (await fetch(`${http}/openrpc.json`)).json();
  const { methods } = document as { methods: readonly { readonly 'x-http'?: { readonly method: string; readonly path: string } }[] };
  const routes = methods.flatMap(({ 'x-http': route }) => (route === undefined ? [] : [route]));
  assert.ok(routes.some(({ path }) => path === '/start_profile'));
  const answers: string[] = [];
  const models = (await (await fetch(`${http}/v1/models`)).json()) as { data: readonly { id: string }[] };
  for (const { method, path } of routes) {
    const { status } = await fetch(`${http}${path.replace('{model}', encodeURIComponent(models.data[0]?.id ?? ''))}`, { method });
    answers.push(`${method} ${path}: ${status}`);
  }
  await daemon.stop('the test is over');
  assert.deepEqual(
    answers.filter((answer) => /40[45]$/.test(answer)),
    [],
  );
});
