/**
 * The verbs that need an engine, with the embedded model: in process, and against a daemon that `serve` started. Exact answers: the
 * model is greedy here.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../../../native/index.js';
import { connect } from '../../../rpc/client/node.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const main = fileURLToPath(new URL('../../../daemon/cli/main.js', import.meta.url));
const home = mkdtempSync(join(tmpdir(), 'inferd-verbs-'));
after(() => rmSync(home, { recursive: true, force: true }));
const env = { PATH: process.env['PATH'], HOME: home, XDG_RUNTIME_DIR: join(home, 'run') };

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const start = (args: readonly string[], runtimeDir = env.XDG_RUNTIME_DIR): ChildProcess =>
  spawn(process.execPath, [main, ...args], { env: { ...env, XDG_RUNTIME_DIR: runtimeDir }, cwd: home });

function finish(child: ChildProcess, stdin = ''): Promise<Result> {
  const result = { stdout: '', stderr: '' };
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  child.stdin?.end(stdin);
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...result })));
}

const inferd = (args: readonly string[], stdin = ''): Promise<Result> => finish(start(args), stdin);
const question = 'What is 123 + 456?';
const sum = '123 + 456 = 579';

const set = join(home, 'set.jsonl');
const message = (content: string) => [{ role: 'user', content }];
writeFileSync(
  set,
  [
    { task: 'add', messages: message(question), want: sum, got: sum },
    { task: 'add', messages: message('What is 2 + 2?'), want: '2 + 2 = 5', got: '2 + 2 = 4' },
    { task: 'bad', messages: [{ role: 3 }], want: '' },
  ]
    .map((line) => JSON.stringify(line))
    .join('\n'),
);

test('run answers without a daemon, and prints nothing but the answer and a line end into a pipe', async () => {
  assert.deepEqual(await inferd(['run', question]), { code: 0, stdout: `${sum}\n`, stderr: '' });
});

test('run reads the prompt from stdin and prints the whole object with --json', async () => {
  const { code, stdout } = await inferd(['run', '--json', '-'], `${question}\n`);
  const answer = JSON.parse(stdout) as {
    object: string;
    choices: { message: { content: string } }[];
    usage: { completion_tokens: number };
  };
  assert.equal(code, 0);
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0]?.message.content, sum);
  assert.ok(answer.usage.completion_tokens > 0);
});

test('Ctrl-C in the middle of an answer exits with 130, and a reader that goes away ends run quietly', async () => {
  const long = 'Tell me a story about a mouse named Alan.';
  const interrupted = start(['run', long]);
  interrupted.stdout?.once('data', () => interrupted.kill('SIGINT'));
  assert.equal((await finish(interrupted)).code, 130);
  const unread = start(['run', long]);
  unread.stdout?.once('data', () => unread.stdout?.destroy());
  const { code, stderr } = await finish(unread);
  assert.deepEqual({ code, stderr }, { code: 0, stderr: '' });
});

test('settings that the engine refuses are a configuration error in one sentence', async () => {
  const { code, stdout, stderr } = await inferd(['run', '--set', 'cache.num_gpu_blocks_override=3', 'x']);
  assert.equal(code, 78);
  assert.equal(stdout, '');
  assert.match(stderr, /^inferd: The KV cache would have 3 blocks .*\n$/);
});

test('a start that fails says so in one sentence, and tells the log nothing else', async () => {
  const { code, stderr } = await inferd(['serve', '--set', 'server.port=0', '--set', 'cache.num_gpu_blocks_override=3']);
  assert.equal(code, 78);
  assert.match(stderr.trimEnd().split('\n').at(-1) ?? '', /^inferd: The KV cache would have 3 blocks .*[^.]$/);
  assert.doesNotMatch(stderr, /"msg":"stop|"stack":/);
  const pretty = await inferd([
    'serve',
    '--set',
    'server.port=0',
    '--set',
    'cache.num_gpu_blocks_override=3',
    '--set',
    'log.pretty=always',
  ]);
  assert.match(pretty.stderr, /INFO: engine state/);
  assert.ok(!pretty.stderr.includes('\u001b'), 'no colours where there is no terminal');
  const far = await inferd(['serve', '--set', 'server.host=203.0.113.1', '--set', 'auth.mode=token', '--set', 'log.level=silent']);
  assert.equal(far.code, 69);
  assert.match(far.stderr, /^inferd: Cannot listen on 203\.0\.113\.1:8765: this machine has no such address; set server\.host .*\n$/);
});

const weights = (change: (path: string) => void) => (folder: string) => change(join(folder, 'model.safetensors'));
const settings = (change: object) => (folder: string) => {
  const path = join(folder, 'config.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...change }));
};
const damages: Readonly<Record<string, readonly [(folder: string) => void, RegExp]>> = {
  'weights that are cut off': [weights((path) => truncateSync(path, 100_000)), /is not a valid safetensors file: tensor .*/],
  'empty weights': [weights((path) => truncateSync(path, 0)), /is not a valid safetensors file: it has 0 bytes and no header/],
  'weights of another shape': [settings({ hidden_size: 512 }), /has the shape \[\d+, 256\], and config\.json asks for \[\d+, 512\]/],
  'no heads': [settings({ num_attention_heads: 0 }), /num_attention_heads must be a whole number above 0/],
  'no layers': [settings({ num_hidden_layers: 0 }), /num_hidden_layers must be a whole number above 0/],
  'a rope factor of 0': [settings({ rope_parameters: { rope_type: 'linear', factor: 0 } }), /factor must be a number from 0\.01/],
  'a vocabulary beyond all bounds': [settings({ vocab_size: 2 ** 31 - 1 }), /vocab_size must be a whole number above 0, at most 16777216/],
  'a tokenizer that cannot be used': [
    (folder) => writeFileSync(join(folder, 'tokenizer.json'), '{"model":{}}'),
    /tokenizer\.json cannot be used: its vocabulary is empty/,
  ],
};
for (const [what, [damage, sentence]] of Object.entries(damages)) {
  test(`a model with ${what} ends the start with 65 and one sentence`, async () => {
    const folder = join(tempFolder(), 'model');
    cpSync(join(packageRoot(), 'config', 'demo-model'), folder, { recursive: true });
    damage(folder);
    const name = ['--set', `inference.model_name=${folder}`, '--set', 'cache.num_gpu_blocks_override=512'];
    const ran = await inferd(['run', ...name, 'x']);
    assert.deepEqual([ran.code, ran.stdout], [65, '']);
    const said = ran.stderr.trimEnd().split('\n');
    assert.match(said.at(-1) ?? '', sentence);
    for (const line of said.slice(0, -1)) assert.match(line, /^inferd: warning: .* runs in the profile of the demo model/);
    const served = await inferd(['serve', '--set', 'server.port=0', ...name]);
    assert.equal(served.code, 65);
    assert.match(served.stderr.trimEnd().split('\n').at(-1) ?? '', sentence);
    assert.doesNotMatch(served.stderr, /"level":"(warn|error)"|"stack":/);
  });
}

test('a runtime folder that cannot be used ends the start with 77', async () => {
  const file = join(tempFolder(), 'file');
  writeFileSync(file, '');
  const { code, stderr } = await finish(start(['serve', '--set', 'server.port=0'], join(file, 'run')));
  assert.equal(code, 77);
  assert.match(stderr, /^inferd: The runtime folder .* cannot be used: .*ENOTDIR.*\n$/);
});

/** A daemon that is ready. The caller ends it. */
async function serving(...args: readonly string[]): Promise<ChildProcess> {
  const daemon = start(['serve', '--json', '--set', 'server.port=0', '--set', 'log.level=silent', ...args]);
  for await (const line of createInterface({ input: daemon.stdout as NonNullable<typeof daemon.stdout> }))
    if ((JSON.parse(line) as { event: string }).event === 'ready') return daemon;
  throw new Error('serve ended before it was ready');
}

test('chat goes on, with all that was said, when its daemon is restarted', async () => {
  let daemon = await serving();
  const chat = start(['chat']);
  const ended = new Promise<number | null>((resolve) => chat.on('close', resolve));
  const answers = createInterface({ input: chat.stdout as NonNullable<typeof chat.stdout> })[Symbol.asyncIterator]();
  const errors = createInterface({ input: chat.stderr as NonNullable<typeof chat.stderr> })[Symbol.asyncIterator]();
  const ask = (text: string): void => void chat.stdin?.write(`${text}\n`);
  try {
    ask('My name is John.');
    assert.equal((await answers.next()).value, 'Nice to meet you, John!');
    daemon.kill('SIGKILL');
    await new Promise((resolve) => daemon.on('close', resolve));
    ask('/stats');
    assert.match((await errors.next()).value as string, /^inferd: (No inferd daemon is running|The daemon closed the connection)/);
    daemon = await serving();
    ask('What is my name?');
    assert.equal((await answers.next()).value, 'Your name is John.');
    chat.stdin?.end();
    assert.equal(await ended, 69, 'the failure in between decides the exit code');
  } finally {
    chat.kill('SIGKILL');
    daemon.kill('SIGKILL');
  }
});

test('a daemon that is suspended is told from none and from one that stops', async () => {
  const daemon = await serving();
  try {
    daemon.kill('SIGSTOP');
    const told = await Promise.all([inferd(['status']), inferd(['run', 'Hello']), inferd(['stop'])]);
    for (const { code, stdout, stderr } of told) {
      assert.deepEqual([code, stdout], [69, '']);
      assert.match(stderr, /^inferd: The daemon \(pid (\d+)\) does not answer: .*kill -CONT \1\n$/);
    }
    daemon.kill('SIGCONT');
    assert.equal((await inferd(['status'])).code, 0);
  } finally {
    daemon.kill('SIGKILL');
  }
});

test('a daemon that drains is told from none, and stop can be called again to wait for it', async () => {
  const daemon = await serving('--set', 'inference.load_dummy=true', '--set', 'scheduler.max_num_sequences=1');
  const ended = new Promise<number | null>((resolve) => daemon.on('close', resolve));
  try {
    const client = await connect({ env });
    // One at a time, thousands of tokens each: more than this test takes.
    const create = () => client.chat.completions.create({ messages: message('x'), max_tokens: 4000 });
    const answers = Array.from({ length: 16 }, () => create().catch(() => null));
    const first = await inferd(['stop', '--wait', '0']);
    assert.equal(first.code, 69);
    assert.match(first.stderr, /is still finishing requests after 0 s; wait longer with --wait/);
    const status = await inferd(['status']);
    assert.deepEqual([status.code, status.stdout], [69, '']);
    assert.match(status.stderr, /^inferd: The daemon \(pid \d+\) is stopping and takes no connections; "inferd stop" waits for its end\n$/);
    const second = start(['stop']);
    const waited = finish(second);
    await once(second.stdout as NonNullable<typeof second.stdout>, 'data');
    await client.close();
    await Promise.all(answers);
    assert.match((await waited).stdout, /finishes the running ones\.\nIt has stopped\.\n$/);
    assert.equal(await ended, 0);
  } finally {
    daemon.kill('SIGKILL');
  }
});

test('run without an answer prints nothing but the reason', async () => {
  const { code, stdout, stderr } = await inferd(['run', '--max-tokens', '5000', 'x']);
  assert.deepEqual([code, stdout], [65, '']);
  assert.match(stderr, /^inferd: The prompt has \d+ tokens and 5000 more may be generated; .*\n$/);
});

test('serve, then run, chat, eval, ps and status use the daemon, and stop ends it', async () => {
  const daemon = start(['serve', '--json', '--set', 'server.port=0', '--set', 'auth.mode=token', '--set', 'log.level=warn']);
  const events: { event: string; ws?: string; exit_code?: number }[] = [];
  const ended = new Promise<number | null>((resolve) => daemon.on('close', resolve));
  try {
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: daemon.stdout as NonNullable<typeof daemon.stdout> }).on('line', (line) => {
        events.push(JSON.parse(line) as (typeof events)[number]);
        if (events.at(-1)?.event === 'ready') resolve();
      });
      daemon.on('close', () => reject(new Error('serve ended before it was ready')));
    });
    assert.equal(events[0]?.event, 'starting');
    assert.ok(events.some((e) => e.event === 'progress'));
    const address = events.at(-1)?.ws ?? '';

    assert.deepEqual(await inferd(['run', question]), { code: 0, stdout: `${sum}\n`, stderr: '' });
    const other = await inferd(['run', '--model', 'other', 'x']);
    assert.equal(other.code, 66);
    assert.match(other.stderr, /serves "demo"; "inferd list" shows the models on disk, and "inferd pull" fetches one/);
    const long = await inferd(['run', '--max-tokens', '5000', 'x']);
    assert.equal(long.code, 65);

    const talk = await inferd(['chat'], 'My name is John.\n/nope\nWhat is my name?\n/system Be kind.\n/clear\n/quit\nnever asked\n');
    assert.equal(talk.code, 0);
    assert.deepEqual(talk.stdout.trimEnd().split('\n'), [
      'Nice to meet you, John!',
      'There is no command /nope; /help lists them.',
      'Your name is John.',
      'System message: Be kind.',
      'The conversation is forgotten.',
    ]);

    const report = await inferd(['eval', set, '--json']);
    assert.equal(report.code, 64, 'the refused case decides the exit code');
    const { tasks, wrong } = JSON.parse(report.stdout) as { tasks: Record<string, unknown>[]; wrong: { line: number }[] };
    assert.deepEqual(tasks[0], { task: 'add', n: 2, exact: 1, exact_match: 0.5, got_cases: 2, got_equal: 2, failed: 0 });
    assert.deepEqual(
      wrong.map((w) => w.line),
      [2, 3],
    );
    assert.match((await inferd(['eval', set, '--n', '2'])).stdout, /^add +2 +1 +0\.500 +1\.000 +0$/m);

    assert.match(
      (await inferd(['ps'])).stdout,
      /^demo +LlamaForCausalLM .* ready +\S+ MiB +\d.* ago +cpu .*\n\nNo requests are running or queued\.\n$/m,
    );
    const status = JSON.parse((await inferd(['status', '--json'])).stdout) as {
      healthy: boolean;
      address: string;
      stats: { kv: { used_blocks: number } };
    };
    assert.deepEqual([status.healthy, status.address, status.stats.kv.used_blocks], [true, address, 0]);
    assert.equal((await inferd(['adapter', 'list'])).stdout, 'There are no adapters; "inferd adapter load" loads one\n');
    assert.equal((await inferd(['unload', 'demo'])).code, 0);
    assert.equal(
      (await inferd(['ps'])).stdout,
      'No models are loaded; "inferd load" loads one, as a request that names it does.\n\nNo requests are running or queued.\n',
    );

    const second = await inferd(['serve', '--set', 'server.port=0', '--set', 'log.level=silent']);
    const running = `inferd: An inferd daemon is already running at ${address}; use it, or stop it first with "inferd stop"\n`;
    assert.deepEqual([second.code, second.stderr], [69, running]);
    const { port } = new URL(address);
    const samePort = await finish(start(['serve', '--set', `server.port=${port}`, '--set', 'log.level=silent'], join(home, 'run2')));
    assert.equal(samePort.code, 69);
    assert.match(
      samePort.stderr,
      /^inferd: Cannot listen on 127\.0\.0\.1:\d+: .*in use by another program; .*set server\.port to a free port/,
    );

    const stopped = await inferd(['stop']);
    assert.equal(stopped.code, 0);
    assert.match(stopped.stdout, /takes no new requests and finishes the running ones\.\nIt has stopped\.\n$/);
    assert.equal(await ended, 0);
    assert.deepEqual(events.at(-1), { event: 'stopped', exit_code: 0 });
    assert.equal((await inferd(['status'])).code, 69);
  } finally {
    daemon.kill('SIGKILL');
  }
});
