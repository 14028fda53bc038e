/** `inferd pull`, `list` and `rm` as a user meets them: real processes, a real hub on a socket, killed and interrupted at any moment. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { findSnapshot } from '../../../../config/models/hub-cache.js';
import { packageRoot } from '../../../../native/index.js';
import { privateEnv } from '../../../helpers/daemon/daemon.js';
import { eventually } from '../../../helpers/eventually.js';
import { tree } from '../../../helpers/hub/pull.js';
import { standInCommit, startHub } from '../../../helpers/hub/stand-in.js';

const main = fileURLToPath(new URL('../../../../daemon/cli/main.js', import.meta.url));
const MiB = 2 ** 20;

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Running {
  readonly child: ChildProcess;
  readonly over: Promise<Result>;
  stderr(): string;
}

function start(args: readonly string[], env: NodeJS.ProcessEnv): Running {
  const child = spawn(process.execPath, [main, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const text = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (more: string) => (text.stdout += more));
  child.stderr.setEncoding('utf8').on('data', (more: string) => (text.stderr += more));
  const over = new Promise<Result>((resolve) => child.on('close', (code) => resolve({ code, ...text })));
  return { child, over, stderr: () => text.stderr };
}

/** An environment with a hub, and the folder of its cache. */
function homeOf(hub: string): { readonly env: NodeJS.ProcessEnv; readonly cache: string } {
  const env = privateEnv();
  const cache = join(env.HOME, 'hub');
  return { env: { ...env, HF_ENDPOINT: hub, HF_HUB_CACHE: cache }, cache };
}

const demo = (name: string): Buffer => readFileSync(join(packageRoot(), 'config', 'demo-model', name));
const demoFiles = Object.fromEntries(
  ['config.json', 'generation_config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'].map((name) => [
    name,
    demo(name),
  ]),
);

test('a model is pulled, listed, served with the hub gone, and deleted', async (t) => {
  const hub = await startHub({ files: { ...demoFiles, 'README.md': 'x', 'pytorch_model.bin': randomBytes(2000) } });
  const { env, cache } = homeOf(hub.url);
  t.after(() => hub.close());
  const pulled = await start(['pull', 'org/model', '--json'], env).over;
  assert.equal(pulled.code, 0, pulled.stderr);
  const lines = pulled.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const path = join(cache, 'models--org--model', 'snapshots', standInCommit);
  assert.equal(lines.at(-1)?.['event'], 'done');
  assert.equal(lines.at(-1)?.['path'], path);
  assert.equal(lines.at(-1)?.['revision'], standInCommit);
  const weights = lines.filter((line) => line['event'] === 'progress' && line['file'] === 'model.safetensors').at(-1);
  assert.equal(weights?.['bytes'], weights?.['total']);
  assert.deepEqual(readdirSync(path).sort(), Object.keys(demoFiles).sort(), 'only what serving needs');
  await hub.close();

  const answer = await start(
    ['run', '--set', 'inference.model_name=org/model', '--set', 'inference.device=cpu', '--temperature', '0', 'What is 2 + 3?'],
    env,
  ).over;
  assert.equal(answer.code, 0, answer.stderr);
  assert.match(answer.stdout, /5/);

  const listed = JSON.parse((await start(['list', '--json'], env).over).stdout) as {
    models: { name: string; problem: string | null; download: unknown }[];
  };
  assert.deepEqual(
    listed.models.map(({ name, problem, download }) => [name, problem, download]),
    [
      ['demo', null, null],
      ['org/model', null, null],
    ],
  );

  const asked = await start(['rm', 'org/model'], env).over;
  assert.equal(asked.code, 64);
  assert.match(asked.stderr, /--yes/);
  const removed = await start(['rm', 'org/model', '--yes'], env).over;
  assert.equal(removed.code, 0, removed.stderr);
  assert.match(removed.stdout, /org\/model is deleted; 1[0-9.]+ MiB are free again/);
  assert.deepEqual(readdirSync(cache), ['.locks']);
  assert.equal((await start(['rm', 'org/model', '--yes'], env).over).code, 66);
  // Nobody is asked about what is not there.
  for (const gone of ['nope', 'org/model', 'org/model@v9']) {
    const looked = await start(['rm', gone], env).over;
    assert.equal(looked.code, 66, looked.stderr);
    assert.match(looked.stderr, /has no model .*; "inferd list" shows what there is/);
  }
});

test('a model that the running daemon serves is not deleted', async (t) => {
  const hub = await startHub({ files: demoFiles });
  t.after(() => hub.close());
  const { env, cache } = homeOf(hub.url);
  assert.equal((await start(['pull', 'org/model'], env).over).code, 0);
  const daemon = start(
    [
      'serve',
      '--set',
      'inference.model_name=org/model',
      '--set',
      'inference.served_model_name=mine',
      '--set',
      'server.port=0',
      '--set',
      'inference.device=cpu',
    ],
    env,
  );
  t.after(() => daemon.child.kill('SIGKILL'));
  await eventually('the daemon publishes itself', () => existsSync(join(env['XDG_RUNTIME_DIR'] ?? '', 'inferd', 'daemon.json')));
  const refused = await start(['rm', 'org/model', '--yes'], env).over;
  assert.equal(refused.code, 69, refused.stderr);
  assert.match(refused.stderr, /The model "mine" is (being )?loaded; unload it first, or stop the daemon/);
  assert.ok(findSnapshot(cache, 'org/model', 'main') !== null);
});

test('deleting one revision keeps what another one shares', async (t) => {
  const hub = await startHub({ files: demoFiles });
  t.after(() => hub.close());
  const { env, cache } = homeOf(hub.url);
  assert.equal((await start(['pull', 'org/model'], env).over).code, 0);
  const second = 'f'.repeat(40);
  const next = await startHub({
    files: { ...demoFiles, 'config.json': Buffer.concat([demo('config.json'), Buffer.from('\n')]) },
    commit: second,
  });
  t.after(() => next.close());
  assert.equal((await start(['pull', 'org/model@v1.0'], { ...env, HF_ENDPOINT: next.url }).over).code, 0);
  const folder = join(cache, 'models--org--model');
  assert.equal(readdirSync(join(folder, 'blobs')).length, 6, 'the weights are there once');
  const removed = await start(['rm', 'org/model@v1.0', '--yes'], env).over;
  assert.equal(removed.code, 0, removed.stderr);
  assert.equal(readdirSync(join(folder, 'blobs')).length, 5);
  assert.deepEqual(readdirSync(join(folder, 'snapshots')), [standInCommit]);
  assert.deepEqual(readdirSync(join(folder, 'refs')), ['main']);
});

test('killed at any moment, a pull goes on where it was and fetches at most 1 MiB twice', async (t) => {
  const weights = randomBytes(5 * MiB + 77);
  const files = { ...demoFiles, 'model.safetensors': weights };
  const hub = await startHub({
    files,
    bytesPerMs: 700,
    fault: ({ number }) => (number % 11 === 7 ? { kind: 'drop', after: 50_000 } : null),
  });
  t.after(() => hub.close());
  const { env, cache } = homeOf(hub.url);
  const total = Object.values(files).reduce((all, { length }) => all + length, 0);
  let kills = 0;
  let last: Result | null = null;
  for (let run = 0; last === null; run++) {
    const before = hub.sentBytes;
    const running = start(['pull', 'org/model'], env);
    if (run < 4) {
      // Not before something has come, so that each kill is one in the middle.
      await eventually('bytes come', () => hub.sentBytes > before + 1000 || running.child.exitCode !== null);
      await sleep(Math.random() * 350);
      kills += running.child.kill('SIGKILL') ? 1 : 0;
    }
    const result = await running.over;
    if (result.code !== null) last = result;
    else {
      const listed = await start(['list'], env).over;
      assert.match(listed.stdout, /of 5\.\d MiB +main/, 'an unfinished download is listed as one');
    }
  }
  assert.equal(last.code, 0, last.stderr);
  assert.ok(kills > 1);
  const snapshot = findSnapshot(cache, 'org/model', 'main') ?? '';
  for (const [name, content] of Object.entries(files)) assert.ok(readFileSync(join(snapshot, name)).equals(content), name);
  const twice = hub.sentBytes - total;
  t.diagnostic(`${kills} kills, ${twice} bytes sent twice, ${Math.round(twice / kills)} a kill`);
  assert.ok(twice <= kills * MiB, `${twice} bytes were sent twice in ${kills} kills`);
  assert.ok(!Object.keys(tree(cache)).some((name) => /inferd-(partial|journal|tmp|pull|claim)/.test(name)), 'nothing is left over');
});

test('Ctrl-C ends a pull with 130 and keeps what came', async (t) => {
  const hub = await startHub({ files: { ...demoFiles, 'model.safetensors': randomBytes(3 * MiB) }, bytesPerMs: 200 });
  t.after(() => hub.close());
  const { env } = homeOf(hub.url);
  const first = start(['pull', 'org/model'], env);
  await eventually('bytes come', () => hub.sentBytes > MiB);
  first.child.kill('SIGINT');
  const { code, stderr } = await first.over;
  assert.equal(code, 130);
  assert.match(stderr, /inferd: The download was stopped; what came is kept and the next pull goes on\n$/);
  const sent = hub.sentBytes;
  assert.equal((await start(['pull', 'org/model'], env).over).code, 0);
  assert.ok(hub.sentBytes - sent < 2.5 * MiB + 600_000, 'the rest is fetched');
});

test('two pulls of one model at once: the second waits and finds all there', async (t) => {
  const hub = await startHub({ files: { ...demoFiles, 'model.safetensors': randomBytes(2 * MiB) }, bytesPerMs: 300 });
  t.after(() => hub.close());
  const { env, cache } = homeOf(hub.url);
  const both = [start(['pull', 'org/model'], env), start(['pull', 'org/model'], env)];
  const results = await Promise.all(both.map(({ over }) => over));
  assert.deepEqual(
    results.map(({ code }) => code),
    [0, 0],
    results.map(({ stderr }) => stderr).join('\n'),
  );
  assert.equal(results.filter(({ stderr }) => /Process \d+ works on the same model; waiting for its end/.test(stderr)).length, 1);
  assert.ok(findSnapshot(cache, 'org/model', 'main') !== null);
  assert.equal(
    hub.sentBytes,
    2 * MiB + Object.entries(demoFiles).reduce((all, [name, { length }]) => all + (name === 'model.safetensors' ? 0 : length), 0),
  );
});

test('each failure has its exit code and a sentence', async (t) => {
  const hub = await startHub({ files: { 'config.json': '{}', 'model.bin': 'x' }, token: 'right' });
  const open = await startHub({ files: { 'config.json': '{}', 'model.bin': 'x' } });
  t.after(async () => {
    await hub.close();
    await open.close();
  });
  const { env } = homeOf(hub.url);
  const cases: readonly (readonly [args: readonly string[], extra: NodeJS.ProcessEnv, code: number, text: RegExp])[] = [
    [['../x'], {}, 64, /^inferd: "\.\.\/x" is no Hugging Face id; name a model as ORG\/NAME/],
    [['org/model@../../x'], {}, 64, /is no revision/],
    [['org/model'], {}, 77, /org\/model is gated; agree to its terms/],
    [['org/model'], { HF_TOKEN: 'wrong' }, 77, /does not let this token have org\/model/],
    [
      ['org/model'],
      { HF_TOKEN: 'right' },
      65,
      /only in formats that inferd does not read .* choose a version of the model with \*\.safetensors/,
    ],
    [['org/other'], { HF_ENDPOINT: open.url }, 66, /There is no model org\/other/],
    [['org/model:Q4_K_M'], { HF_ENDPOINT: open.url }, 66, /org\/model has no GGUF files; leave :Q4_K_M away/],
    [['org/model'], { HF_ENDPOINT: 'ftp://x' }, 64, /HF_ENDPOINT is not the address of a hub/],
    [['org/model'], { HF_ENDPOINT: 'http://127.0.0.1:1' }, 69, /ECONNREFUSED/],
  ];
  for (const [args, extra, code, text] of cases) {
    const result = await start(['pull', ...args], { ...env, ...extra }).over;
    assert.match(result.stderr.split('\n').at(-2) ?? '', text);
    assert.equal(result.code, code, result.stderr);
    assert.equal(result.stdout, '');
  }
});

test('a cache that cannot be written is said so', async (t) => {
  const hub = await startHub({ files: demoFiles });
  t.after(() => hub.close());
  const { env } = homeOf(hub.url);
  const file = join(env['HOME'] ?? '', 'file');
  mkdirSync(join(env['HOME'] ?? '', 'd'));
  writeFileSync(file, '');
  const result = await start(['pull', 'org/model'], { ...env, HF_HUB_CACHE: join(file, 'hub') }).over;
  assert.equal(result.code, 77, result.stderr);
  assert.match(result.stderr, /The cache cannot be written \(ENOTDIR: .*\); check its permissions, or set HF_HOME/);
});
