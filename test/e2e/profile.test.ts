/** Profiles of a whole daemon on the CPU: recorded by RPC and HTTP, read back as a viewer would, and kept through signals and crashes. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { checkTrace, readTrace, spans, stepsOf, type TraceFile } from '../helpers/daemon/profile.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { rawRequest } from '../helpers/wire/raw-http.js';
import type { RpcSocket } from '../helpers/wire/rpc-socket.js';

interface Stopped {
  readonly status: string;
  readonly files: readonly string[];
  readonly ended_by: string;
  readonly summary: readonly (Readonly<Record<string, number | null>> & {
    readonly device: { readonly source: string };
    readonly events: Readonly<Record<string, number>>;
    readonly dropped: Readonly<Record<string, number>>;
  })[];
}

const story = (tokens: number) => ({
  messages: [{ role: 'user', content: 'Tell me a story about a fox.' }],
  max_tokens: tokens,
  ignore_eos: true,
});
const stop = async (socket: RpcSocket): Promise<Stopped> => (await socket.call('profile.stop')) as unknown as Stopped;
const codeOf = async (socket: RpcSocket, method: string): Promise<number | undefined> =>
  (await socket.reply(socket.send(method, {}))).error?.code;

function traceOf({ files }: Stopped): TraceFile {
  assert.equal(files.length, 1);
  const trace = readTrace(files[0]!); // one file
  checkTrace(trace);
  return trace;
}

describe('a daemon', () => {
  const folder = tempFolder();
  let at: TestDaemon;
  before(async () => {
    at = await startTestDaemon([`profile.directory=${JSON.stringify(folder)}`]);
  });
  after(() => at.close());

  test('records scheduler, executor and device with the same steps on one clock', async () => {
    const socket = await at.open();
    assert.deepEqual(await socket.call('profile.start'), { status: 'recording', files: [] });
    await Promise.all([1, 2, 3].map(() => socket.call('chat.completions.create', story(60))));
    const stopped = await stop(socket);
    assert.equal(stopped.status, 'written');
    assert.ok(stopped.files[0]?.startsWith(join(folder, 'tp0')));
    const trace = traceOf(stopped);

    const planned = stepsOf(spans(trace, 'plan'));
    assert.ok(planned.length >= 60, `${planned.length} steps`);
    for (const name of ['apply results', 'write ring', 'read plan', 'submit', 'write result'])
      assert.deepEqual(stepsOf(spans(trace, name)), planned, name);
    const ran = trace.traceEvents.filter((e) => e.cat === 'step');
    assert.deepEqual(stepsOf(ran), planned, 'the device ran the steps that were planned');
    assert.ok(stepsOf(spans(trace, 'wait')).every((step) => planned.includes(step)));
    for (const name of ['decode step', 'prompt step', 'linear', 'attention', 'sample']) assert.ok(spans(trace, name).length > 0, name);

    // Cause before effect, across threads and native code.
    const by = (name: string) => new Map(spans(trace, name).map((e) => [e.args['step'], e]));
    const [plans, submits, results, applied] = [by('plan'), by('submit'), by('write result'), by('apply results')];
    for (const device of ran) {
      const step = device.args['step'];
      const moments = [plans.get(step)!.ts, submits.get(step)!.ts, device.ts, results.get(step)!.ts, applied.get(step)!.ts];
      for (let i = 1; i < moments.length; i++) assert.ok(moments[i]! >= moments[i - 1]! - 20, `step ${step}: ${moments}`);
      assert.ok(results.get(step)!.ts >= device.ts + device.dur - 20, `step ${step} ended before its result`);
    }

    const counters = trace.traceEvents.filter((e) => e.ph === 'C');
    assert.equal(Math.max(...counters.filter((e) => e.name === 'requests').map((e) => Number(e.args['running']))), 3);
    assert.ok(counters.some((e) => e.name === 'kv blocks' && Number(e.args['used']) > 0));
    const text = JSON.stringify(trace);
    for (const word of ['fox', 'story', 'Tell']) assert.ok(!text.includes(word), `the prompt's "${word}" is in the file`);
  });

  test('sums up what the file shows', async () => {
    const socket = await at.open();
    await socket.call('profile.start');
    await socket.call('chat.completions.create', story(40));
    const { summary, ...rest } = await stop(socket);
    const trace = traceOf({ summary, ...rest });
    const [s] = summary;
    assert.ok(s !== undefined);
    assert.deepEqual(trace.otherData['summary'], s);
    assert.equal(s.device.source, 'ops');
    const decodes = spans(trace, 'decode step');
    assert.equal(s['decode_steps'], decodes.length);
    assert.equal(s['steps'], decodes.length + spans(trace, 'prompt step').length);
    const busyMs = decodes.reduce((sum, e) => sum + e.dur, 0) / 1000;
    assert.ok(Math.abs((s['busy_ms'] ?? 0) - busyMs) < 0.01, `${s['busy_ms']} ${busyMs}`);
    const [first, last] = [decodes[0]!, decodes.at(-1)!];
    const wholeMs = (last.ts + last.dur - first.ts) / 1000;
    assert.ok(Math.abs((s['busy_ms'] ?? 0) + (s['idle_ms'] ?? 0) - wholeMs) < 0.01, 'one request is one run');
    assert.ok(Math.abs((s['idle_share'] ?? -1) - (s['idle_ms'] ?? 0) / wholeMs) < 1e-3);
    assert.ok((s['median_period_ms'] ?? 0) >= (s['median_step_ms'] ?? 1));
    assert.deepEqual(s.dropped, { scheduler: 0, executor: 0, device: 0 });
    const device = trace.traceEvents.filter((e) => e.pid === 2 && e.ph === 'X');
    assert.equal(s.events['device'], device.length);
  });

  test('answers by HTTP what it answers by RPC', async () => {
    const post = async (path: string, body = ''): Promise<{ status: number; body: Record<string, unknown> }> => {
      const reply = await fetch(`${at.http}${path}`, { method: 'POST', body });
      return { status: reply.status, body: (await reply.json()) as Record<string, unknown> };
    };
    assert.deepEqual(await post('/start_profile'), { status: 200, body: { status: 'recording', files: [] } });
    const again = await post('/start_profile', '{"prompt": "what a benchmark sends"}');
    assert.equal(again.status, 409);
    assert.deepEqual(again.body['error'], {
      message: 'A profile is being recorded already; stop it first',
      type: 'invalid_request_error',
      param: null,
      code: 'request_failed',
    });
    const socket = await at.open();
    await socket.call('chat.completions.create', story(5));
    const stopped = await post('/stop_profile');
    assert.equal(stopped.status, 200);
    traceOf(stopped.body as unknown as Stopped);
    assert.equal((await post('/stop_profile')).status, 409);
    const get = await fetch(`${at.http}/start_profile`);
    assert.equal(get.status, 405);
  });

  test('refuses what cannot be done, and foreign web pages, with the error of the table', async () => {
    const socket = await at.open();
    assert.equal(await codeOf(socket, 'profile.stop'), -32803);
    await socket.call('profile.start');
    assert.equal(await codeOf(socket, 'profile.start'), -32803);
    const port = Number(new URL(at.http).port);
    const foreign = ['origin: http://evil.example', 'content-length: 0'];
    assert.equal((await rawRequest(port, ['POST /stop_profile HTTP/1.1', `host: 127.0.0.1:${port}`, ...foreign])).status, 403);
    await stop(socket);
  });

  test('says so when the engine died while it was recorded, and records again', async () => {
    const socket = await at.open();
    for (const kind of ['executor', 'scheduler'] as const) {
      await socket.call('profile.start');
      const files = readdirSync(join(folder, 'tp0')).length;
      at.mayFail();
      at.daemon.engine.killActor(kind, 0);
      const { error } = await socket.reply(socket.send('profile.stop', {}));
      assert.equal(error?.code, -32012);
      assert.match(error?.message ?? '', /The recording is lost/);
      assert.equal(readdirSync(join(folder, 'tp0')).length, files, 'no file of it');
      await eventually('the engine is back', () => at.daemon.engine.client.state() === 'ready' && at.daemon.engine.recorders().length > 0);
    }
    await socket.call('profile.start');
    await socket.call('chat.completions.create', story(5));
    assert.ok(spans(traceOf(await stop(socket)), 'decode step').length > 0);
  });
});

test('events beyond profile.max_events are counted in the answer and in the file', async () => {
  const folder = tempFolder();
  const at = await startTestDaemon([`profile.directory=${JSON.stringify(folder)}`, 'profile.max_events=1000']);
  const socket = await at.open();
  await socket.call('profile.start');
  await socket.call('chat.completions.create', story(100));
  const stopped = await stop(socket);
  const [s] = stopped.summary;
  assert.equal(s?.events['device'], 1000);
  assert.ok((s?.dropped['device'] ?? 0) > 1000);
  assert.deepEqual((traceOf(stopped).otherData['summary'] as Stopped['summary'][number]).dropped, s?.dropped);
  await at.close();
});

test('a folder that cannot be written is refused when asked, and at the start when the recording begins there', async () => {
  const file = join(tempFolder(), 'file');
  writeFileSync(file, '');
  const directory = `profile.directory=${JSON.stringify(join(file, 'profiles'))}`;
  const at = await startTestDaemon([directory]);
  const socket = await at.open();
  const { error } = await socket.reply(socket.send('profile.start', {}));
  assert.equal(error?.code, -32803);
  assert.match(error?.message ?? '', /cannot be written to .* change profile\.directory/);
  await at.close();
  await assert.rejects(startTestDaemon([directory, 'profile.at_start=true']), /cannot be written to .* change profile\.directory/);
});

test('a daemon that stops while it records writes the file first', async () => {
  const folder = tempFolder();
  const at = await startTestDaemon([`profile.directory=${JSON.stringify(folder)}`, 'profile.at_start=true']);
  const socket = await at.open();
  await socket.call('chat.completions.create', story(20));
  await at.close();
  const files = readdirSync(join(folder, 'tp0'));
  assert.deepEqual(
    files.map((name) => name.replace(/^.*Z\./, '')),
    ['trace.json.gz'],
  );
  const trace = readTrace(join(folder, 'tp0', files[0]!)); // one file
  checkTrace(trace);
  assert.ok(spans(trace, 'decode step').length >= 19);
  assert.equal(trace.otherData['ended_by'], 'the daemon stops');
});

test('without profile.directory files go to the state folder', async () => {
  const at = await startTestDaemon();
  const socket = await at.open();
  await socket.call('profile.start');
  const { files } = await stop(socket);
  assert.ok(
    files[0]?.startsWith(join(at.env['HOME'] ?? '', '.local', 'state', 'inferd', 'profiles', 'tp0')) && existsSync(files[0]),
    files[0],
  );
  await at.close();
});
