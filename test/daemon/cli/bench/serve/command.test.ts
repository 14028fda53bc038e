/** `inferd bench serve` as a user meets it: the program in a process of its own, against a daemon with the demo model and a fake server. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { backends } from '../../../../../daemon/cli/bench/serve/backends/table.js';
import { packageRoot } from '../../../../../native/index.js';
import { privateEnv, startTestDaemon, type TestDaemon } from '../../../../helpers/daemon/daemon.js';
import { tempFolder } from '../../../../helpers/temp-folder.js';
import { type Behaviour, startFakeOpenAi } from './fake-openai.js';

let at: TestDaemon;
const folder = tempFolder();
before(async () => {
  at = await startTestDaemon([`profile.directory=${JSON.stringify(folder)}`]);
});
after(() => at.close());

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(args: readonly string[], env: NodeJS.ProcessEnv): ChildProcess {
  return spawn(process.execPath, [join(packageRoot(), 'daemon', 'cli', 'inferd.mjs'), 'bench', 'serve', ...args], { env, cwd: folder });
}

function finish(child: ChildProcess): Promise<Result> {
  const result = { stdout: '', stderr: '' };
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...result })));
}

const bench = (args: readonly string[], env: NodeJS.ProcessEnv = privateEnv()): Promise<Result> => finish(start(args, env));
const few = ['--num-prompts', '6', '--max-concurrency', '3', '--random-input-len', '20', '--random-output-len', '8'];
const parse = (text: string) => JSON.parse(text) as Record<string, unknown>;

test('every backend that inferd answers gets the tokens it asked for', async () => {
  for (const { name, port } of backends.filter((b) => !['sglang', 'lmdeploy', 'scalellm'].includes(b.name))) {
    const base = port === null ? at.ws : at.http;
    const profile = name === 'vllm' ? ['--profile'] : [];
    const { code, stdout, stderr } = await bench(['--backend', name, '--base-url', base, ...few, ...profile, '--ignore-eos', '--json']);
    assert.deepEqual([code, stderr], [0, ''], name);
    const r = parse(stdout);
    if (name === 'vllm') assert.match(JSON.stringify(r['profile']), /"files":\["[^"]+\.trace\.json\.gz"\]/);
    assert.deepEqual([r['completed'], r['failed'], r['total_output_tokens'], r['model_id']], [6, 0, 48, 'demo'], name);
    if (name.includes('chat')) assert.ok(Number(r['total_input_tokens']) > 120, 'the template counts');
    else assert.equal(r['total_input_tokens'], 120, name);
    assert.ok(Number(r['mean_ttft_ms']) > 0 && Number(r['mean_tpot_ms']) > 0 && Number(r['output_throughput']) > 0, name);
  }
});

test('the running daemon is found, its profile is recorded, and the file holds all the run was', async () => {
  const out = join(folder, 'results');
  const args = [...few, '--save-detailed', '--result-dir', out, '--metadata', 'card=none', 'run=2', '--profile', '--ignore-eos'];
  const { code, stdout, stderr } = await bench([...args, '--request-rate', '100', '--goodput', 'ttft:60000', 'e2el:60000'], at.env);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(
    stdout,
    /^inferd-ws at ws:.*, model demo\nrandom: 6 prompts, 20 tokens in and at most 8 out on average, seed 0; 100 requests a second/,
  );
  assert.match(stdout, /\nms +mean +median +std +p99\nTTFT .*\nTPOT .*\nITL .*\n\nITL is the time between two chunks/);
  assert.match(stdout, /\nprofile +\S+\.trace\.json\.gz/);
  const [file = ''] = readdirSync(out);
  assert.match(file, /^inferd-ws-100\.0qps-concurrency3-demo-\d{8}-\d{6}\.json$/);
  assert.match(stdout, new RegExp(`result +.*${file}\n$`));
  const r = parse(readFileSync(join(out, file), 'utf8'));
  assert.deepEqual([r['card'], r['run'], r['request_rate'], r['max_concurrency'], r['completed']], ['none', '2', 100, 3, 6]);
  assert.equal(r['request_goodput:'], r['request_throughput']);
  for (const key of ['input_lens', 'output_lens', 'ttfts', 'itls', 'generated_texts', 'errors', 'start_times', 'tpots', 'e2els'])
    assert.equal((r[key] as unknown[]).length, 6, key);
});

test('texts of a file are counted by the daemon, over HTTP too', async () => {
  const line = 'The fox told the mouse a story about the moon and the sea.';
  writeFileSync(join(folder, 'poem.txt'), `${line}\n`.repeat(30));
  const talks = Array.from({ length: 8 }, (_, i) => ({ conversations: [{ value: `${line} ${i}` }, { value: line }] }));
  writeFileSync(join(folder, 'talks.json'), JSON.stringify(talks));
  const sonnet = ['--dataset-name', 'sonnet', '--dataset-path', 'poem.txt', '--sonnet-input-len', '120', '--sonnet-prefix-len', '40'];
  const http = [
    '--backend',
    'openai',
    '--base-url',
    at.http,
    '--json',
    '--num-prompts',
    '4',
    '--save-result',
    '--result-filename',
    'poem.json',
  ];
  const poem = await bench([...http, ...sonnet, '--sonnet-output-len', '5', '--ignore-eos']);
  assert.equal(poem.code, 0, poem.stderr);
  const lens = parse(readFileSync(join(folder, 'poem.json'), 'utf8'))['input_lens'] as number[];
  assert.ok(
    lens.every((n) => n > 80 && n <= 121),
    `${lens} (the answer counts the beginning of the text)`,
  );
  const talk = await bench([
    '--base-url',
    at.ws,
    '--json',
    '--dataset-name',
    'sharegpt',
    '--dataset-path',
    'talks.json',
    '--num-prompts',
    '20',
  ]);
  assert.equal(talk.code, 0);
  assert.match(talk.stderr, /^inferd: the dataset has only 8 usable prompts of 20\n$/);
});

test('requests that fail are counted and the first is told; the exit code says so', async (t) => {
  const failures: readonly Behaviour[] = ['whole', 'error event', 'cut'];
  const fake = await startFakeOpenAi((n) => (n < 10 ? failures[n % 3] : null) ?? 'whole');
  t.after(() => fake.close());
  const { code, stdout, stderr } = await bench([
    '--backend',
    'vllm',
    '--base-url',
    fake.url,
    '--num-prompts',
    '9',
    '--max-concurrency',
    '1',
  ]);
  assert.equal(code, 69);
  assert.match(stdout, /requests {2}3 answered, 6 failed in /);
  assert.equal(stderr, 'inferd: 6 of 9 requests failed; the first: the engine died\n');
  const unrecorded = await bench(['--backend', 'vllm', '--base-url', fake.url, '--profile']);
  assert.equal(unrecorded.code, 69);
  assert.equal(unrecorded.stderr, 'inferd: The server records no profile (HTTP 404: nothing here); leave --profile away\n');
});

test('Ctrl-C prints what there is', async (t) => {
  const fake = await startFakeOpenAi((n) => (n < 4 ? 'whole' : 'slow'));
  t.after(() => fake.close());
  const child = start(['--backend', 'openai', '--base-url', fake.url, '--num-prompts', '500', '--max-concurrency', '2'], privateEnv());
  const ended = finish(child);
  while (fake.bodies.length < 6) await new Promise((resolve) => setTimeout(resolve, 20));
  child.kill('SIGINT');
  const { code, stdout, stderr } = await ended;
  assert.deepEqual([code, stderr], [130, '']);
  assert.match(stdout, /\ninterrupted; of 3 requests that ended before:\nrequests {2}3 answered in .*\n[\s\S]*\nTTFT /);
});

test('a server that is not there, or refuses, ends it before anything is measured', async () => {
  const fails = async (code: number, message: RegExp, ...args: readonly string[]): Promise<void> => {
    const result = await bench(args);
    assert.equal(result.code, code, result.stderr);
    assert.match(result.stderr, message);
    assert.doesNotMatch(result.stdout, /TTFT/);
  };
  await fails(69, /^inferd: No inferd daemon is running .*\n$/);
  await fails(
    69,
    /^inferd: No server answers at http:\/\/127\.0\.0\.1:1 \(ECONNREFUSED\); .*--base-url\n$/,
    '--backend',
    'vllm',
    '--port',
    '1',
  );
  const trial = 'inferd: The request that tries the server out failed: ';
  await fails(
    64,
    new RegExp(`^${trial}HTTP 404: .*; nothing was measured\n$`),
    '--backend',
    'openai',
    '--base-url',
    at.http,
    '--model',
    'nix',
  );
  await fails(65, new RegExp(`^${trial}The prompt has 9000 tokens`), '--base-url', at.ws, '--random-input-len', '9000');
});

test('arguments that cannot be are refused with 64 before a server is looked for', async () => {
  for (const [args, message] of [
    [['--backend', 'tgi'], /--backend "tgi" is not known; expected one of inferd-ws, /],
    [['--dataset-name', 'hf'], /--dataset-name "hf" is not known/],
    [['--request-rate', '0'], /--request-rate "0" is not allowed/],
    [['--burstiness', '0'], /--burstiness "0" is not allowed/],
    [['--goodput', 'itl:5'], /--goodput "itl" is not known; expected ttft, tpot, e2el/],
    [['--goodput', 'ttft:-5'], /--goodput "ttft:-5" is not allowed/],
    [['--goodput', 'ttft'], /write a metric and its limit/],
    [['--percentile-metrics', 'ttft,foo'], /--percentile-metrics "foo" is not known/],
    [['--metric-percentiles', '99,101'], /--metric-percentiles "101" is not allowed/],
    [['--metadata', 'x'], /write NAME=VALUE/],
    [['--endpoint', '/v1/completions'], /has no --endpoint/],
    [['--backend', 'openai', '--endpoint', '/v1/chat/completions'], /does not fit --backend openai/],
    [['--base-url', 'nowhere'], /is not an address/],
    [['--ramp-up-strategy', 'linear'], /needs --ramp-up-start-rps/],
    [['--num-prompts', '0'], /--num-prompts "0" is not allowed/],
  ] as const) {
    const { code, stdout, stderr } = await bench(args);
    assert.deepEqual([code, stdout], [64, ''], args.join(' '));
    assert.match(stderr, message);
  }
});
