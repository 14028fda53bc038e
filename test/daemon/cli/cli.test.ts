/**
 * The command line as a user meets it: the compiled program is started, and its output, its sentences and its exit codes are checked.
 * Only verbs and mistakes that need no engine; folders of the user are empty ones.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { defaultToml, jsonSchema } from '../../../config/option-docs.js';

const main = fileURLToPath(new URL('../../../daemon/cli/main.js', import.meta.url));
const home = mkdtempSync(join(tmpdir(), 'inferd-cli-'));
after(() => rmSync(home, { recursive: true }));

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function inferd(args: readonly string[], extra: { env?: NodeJS.ProcessEnv; stdin?: string } = {}): Promise<Result> {
  const env = { PATH: process.env['PATH'], HOME: home, XDG_RUNTIME_DIR: join(home, 'run'), ...extra.env };
  const child = spawn(process.execPath, [main, ...args], { env, cwd: home });
  const result = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  child.stdin.end(extra.stdin ?? '');
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...result }));
  });
}

/** The command fails with this code and exactly these lines on stderr, and nothing on stdout. */
async function fails(args: readonly string[], code: number, ...lines: readonly string[]): Promise<void> {
  assert.deepEqual(await inferd(args), { code, stdout: '', stderr: lines.map((line) => `inferd: ${line}\n`).join('') });
}

function file(name: string, text: string): string {
  const path = join(home, name);
  writeFileSync(path, text);
  return path;
}

test('--version prints the version of the package', async () => {
  const { code, stdout } = await inferd(['--version']);
  assert.equal(code, 0);
  assert.match(stdout, /^\d+\.\d+\.\d+\n$/);
});

test('help names every verb, and each verb explains itself with examples', async () => {
  const { code, stdout, stderr } = await inferd(['--help']);
  assert.equal(code, 0);
  assert.equal(stderr, '');
  const verbs = ['serve', 'run', 'chat', 'list', 'ps', 'stop', 'status', 'service', 'config', 'doctor', 'eval'];
  for (const verb of verbs) assert.match(stdout, new RegExp(`^  ${verb} `, 'm'));
  const helps = await Promise.all(verbs.slice(0, 3).map((verb) => inferd([verb, '--help'])));
  for (const help of helps) {
    assert.equal(help.code, 0);
    assert.match(help.stdout, /Examples:\n {2}inferd/);
  }
  assert.equal((await inferd(['help', 'eval'])).stdout, (await inferd(['eval', '--help'])).stdout);
  assert.match((await inferd(['help', 'token', 'create'])).stdout, /^Usage: inferd token create /);
});

test('a mistyped command or option is a usage error that names the nearest one', async () => {
  await fails(['serv'], 64, 'unknown command "serv"; did you mean "inferd serve"? (see "inferd --help")');
  await fails(['config', 'chek', 'x'], 64, 'unknown command "chek"; did you mean "inferd config check"? (see "inferd config --help")');
  await fails(['serve', '--jsn'], 64, 'unknown option --jsn of "inferd serve"; did you mean --json? (see "inferd serve --help")');
  await fails(
    ['run', '--max-token=3', 'x'],
    64,
    'unknown option --max-token=3 of "inferd run"; did you mean --max-tokens? (see "inferd run --help")',
  );
  await fails(['help', 'token', 'crate'], 64, 'unknown command "crate"; did you mean "inferd token create"? (see "inferd token --help")');
  await fails(['help', 'chta'], 64, 'unknown command "chta"; did you mean "inferd chat"? (see "inferd --help")');
});

test('an option of the configuration that is typed as a flag is answered with how it is set', async () => {
  const help = '(see "inferd serve --help")';
  await fails(['serve', '--port', '9000'], 64, `unknown option --port of "inferd serve"; did you mean --set server.port=...? ${help}`);
  await fails(
    ['serve', '--max-num-sequences=8'],
    64,
    `unknown option --max-num-sequences=8 of "inferd serve"; did you mean --set scheduler.max_num_sequences=...? ${help}`,
  );
  await fails(
    ['serve', '--model', 'x'],
    64,
    `unknown option --model of "inferd serve"; did you mean --set inference.model_name=...? ${help}`,
  );
  await fails(['ps', '--port', '9000'], 64, 'unknown option --port of "inferd ps"; see "inferd ps --help"');
});

test('what resembles no command or option is answered without a guess', async () => {
  await fails(['wibble'], 64, 'unknown command "wibble"; see "inferd --help"');
  await fails(['help', 'wibble'], 64, 'unknown command "wibble"; see "inferd --help"');
  await fails(['run', '--foo', 'x'], 64, 'unknown option --foo of "inferd run"; see "inferd run --help"');
});

test('missing and surplus arguments and bad numbers are usage errors', async () => {
  await fails(['run'], 64, '"inferd run" needs <prompt>; see "inferd run --help"');
  await fails(['run', '  '], 64, 'The prompt is empty; give some text, for example: inferd run "Who are you?"');
  await fails(['list', 'x'], 64, '"inferd list" does not take "x"; see "inferd list --help"');
  await fails(['eval', 'x', 'y'], 64, '"inferd eval" does not take "y"; see "inferd eval --help"');
  await fails(['config'], 64, '"inferd config" needs one of: check, show, init; for example: inferd config check my.toml');
  await fails(['run', '--temperature', '3', 'x'], 64, '--temperature "3" is not allowed; expected a number from 0 to 2');
  await fails(['eval', '--n', '1.5', 'x'], 64, '--n "1.5" is not allowed; expected a whole number from 1 to 2147483648');
});

test('verbs that are of another version are not there', async () => {
  for (const verb of ['pull', 'bench', 'service']) assert.equal((await inferd([verb])).code, 64, verb);
});

test('without a daemon, ps, status and stop say so', async () => {
  for (const verb of ['ps', 'status', 'stop']) await fails([verb], 69, 'No inferd daemon is running; start one with "inferd serve"');
  mkdirSync(join(home, 'run', 'inferd'), { recursive: true });
  const left = {
    pid: 2 ** 22 - 1,
    startedAt: '2025-01-01T00:00:00Z',
    version: '0',
    address: 'ws://127.0.0.1:9',
    http: 'http://127.0.0.1:9',
  };
  writeFileSync(join(home, 'run', 'inferd', 'daemon.json'), JSON.stringify(left));
  await fails(['status'], 69, 'No inferd daemon is running; start one with "inferd serve"');
  rmSync(join(home, 'run', 'inferd'), { recursive: true });
});

test('config check prints every problem, one a line, and exits with 78', async () => {
  const path = file('bad.toml', '[server]\nport = -1\nhosst = "x"\n\n[cache]\nblock_size = 3\n');
  await fails(
    ['config', 'check', path],
    78,
    `${path}:3: unknown key server.hosst = "x"; nearest known key: server.host`,
    `${path}:2: server.port = -1 is not allowed; expected a whole number from 0 to 65535`,
    `${path}:6: cache.block_size = 3 is not allowed; expected 1 or a multiple of 16 up to 256 tokens`,
  );
});

test('config check passes a good file, tells warnings, and does not look at the environment', async () => {
  const path = file('good.toml', '[server]\nport = 1\n[inference]\nflush_storage = true\n');
  const { code, stdout, stderr } = await inferd(['config', 'check', path], { env: { INFERD_SERVER__PORT: 'x' } });
  assert.equal(code, 0);
  assert.equal(stdout, `${path}: good, 2 options set\n`);
  assert.match(stderr, /^inferd: warning: .*good\.toml:4: inference\.flush_storage has no effect/);
  const json = await inferd(['config', 'check', '--json', path]);
  assert.equal((JSON.parse(json.stdout) as { ok: boolean }).ok, true);
});

test('a missing configuration file exits with 66', async () => {
  for (const args of [
    ['config', 'check', 'no.toml'],
    ['serve', '--config', 'no.toml'],
    ['list', '--config', 'no.toml'],
  ])
    await fails(args, 66, 'The configuration file no.toml does not exist; "inferd config init" writes one');
});

test('config show tells where each value came from, and hides secrets', async () => {
  const path = file('show.toml', '[server]\nport = 1\nmax_connections = 2\n[inference]\napi_key = "hf_secret"\n');
  const extra = { env: { INFERD_SERVER__MAX_CONNECTIONS: '3' } };
  const { code, stdout } = await inferd(['config', 'show', '--config', path, '--set', 'log.level=warn'], extra);
  assert.equal(code, 0);
  assert.match(stdout, new RegExp(`^server\\.port +1 +${path}:2$`, 'm'));
  assert.match(stdout, /^server\.max_connections +3 +environment INFERD_SERVER__MAX_CONNECTIONS$/m);
  assert.match(stdout, /^log\.level +"warn" +--set log\.level$/m);
  assert.match(stdout, /^server\.host +"127\.0\.0\.1" +default$/m);
  assert.match(stdout, /^inference\.api_key +\(secret\)/m);
  const json = await inferd(['config', 'show', '--config', path, '--json'], extra);
  assert.doesNotMatch(stdout + json.stdout, /hf_secret/);
  const shown = JSON.parse(json.stdout) as { options: { key: string; value: unknown; origin: string }[] };
  assert.deepEqual(
    shown.options.find((o) => o.key === 'server.port'),
    { key: 'server.port', value: 1, origin: `${path}:2` },
  );
});

test('without a file the demo profile counts, and the user configuration as soon as there is one', async () => {
  const first = await inferd(['config', 'show']);
  assert.match(first.stdout, /^# .*demo\.toml\n/);
  const made = await inferd(['config', 'init']);
  const own = join(home, '.config', 'inferd', 'config.toml');
  assert.equal(made.code, 0);
  assert.equal(readFileSync(own, 'utf8'), defaultToml());
  assert.equal(statSync(own).mode & 0o777, 0o600);
  assert.match((await inferd(['config', 'show'])).stdout, new RegExp(`^# ${own}\n`));
  await fails(['config', 'init'], 78, `${own} exists already; give another name, or --force to overwrite it`);
  assert.equal((await inferd(['config', 'init', '--force'])).code, 0);
  rmSync(join(home, '.config'), { recursive: true });
});

test('another model in the demo profile is warned of, with what the profile sets', async () => {
  const { stderr } = await inferd(['config', 'show', '--set', 'inference.model_name=/models/llama']);
  assert.match(stderr, /warning: \/models\/llama runs in the profile of the demo model/);
  assert.match(stderr, /which also sets inference\.device, cache\.num_gpu_blocks_override/);
  assert.equal((await inferd(['config', 'show'])).stderr, '');
  const ofProfile = ['inference.device=auto', 'cache.num_gpu_blocks_override=512'];
  const all = [...ofProfile, 'scheduler.max_num_batched_tokens=256', 'scheduler.max_num_sequences=8', 'inference.model_name=/models/llama'];
  assert.equal((await inferd(['config', 'show', ...all.flatMap((set) => ['--set', set])])).stderr, '', 'nothing of the profile is left');
});

test('config init prints the documents made from the schema', async () => {
  assert.equal((await inferd(['config', 'init', '-'])).stdout, defaultToml());
  assert.deepEqual(JSON.parse((await inferd(['config', 'init', '-', '--format', 'json-schema'])).stdout), jsonSchema());
  assert.match((await inferd(['config', 'init', '-', '--format', 'markdown'])).stdout, /^\| option \| default \|/);
  const below = join(file('plain.txt', ''), 'inferd');
  await fails(['config', 'init', join(below, 'a.toml')], 78, `The folder ${below} cannot be made (ENOTDIR); give another path`);
  await fails(['config', 'init', '--format', 'xml'], 64, '--format "xml" is not allowed; expected toml, markdown, json-schema');
});

test('list shows the embedded model', async () => {
  const { code, stdout } = await inferd(['list']);
  assert.equal(code, 0);
  assert.match(stdout, /^demo +LlamaForCausalLM +BF16 +1\d\.\d MiB +embedded$/m);
  const json = JSON.parse((await inferd(['list', '--json'])).stdout) as { models: { name: string; problem: string | null }[] };
  assert.deepEqual(
    json.models.map((m) => [m.name, m.problem]),
    [['demo', null]],
  );
});

test('a model that cannot be had ends serve and run before anything starts', async () => {
  const missing = /^inferd: The model "org\/none" .* is neither a folder nor in the Hugging Face cache .*; download it there/;
  for (const args of [
    ['serve', '--set', 'inference.model_name=org/none'],
    ['run', '--model', 'org/none', 'hello'],
  ]) {
    const { code, stdout, stderr } = await inferd(args);
    assert.equal(code, 66);
    assert.equal(stdout, '');
    assert.equal(stderr.trimEnd().split('\n').length, 1, 'no warning either');
    assert.match(stderr, missing);
  }
});

test('a configuration that must not start is refused by serve with 78', async () => {
  for (const set of ['server.host=0.0.0.0', 'auth.mode=["none", "token"]', 'inference.trust_remote_code=true'])
    assert.equal((await inferd(['serve', '--set', set])).code, 78, set);
});

test('eval tells a missing file from a bad one and names the line', async () => {
  await fails(['eval', 'no.jsonl'], 66, 'no.jsonl cannot be read (ENOENT); give the path of a JSONL file');
  const good = '{"messages": [{"role": "user", "content": "x"}], "want": "y", "task": "t"}\n';
  const path = file('set.jsonl', `${good}\n{"messages": 3}\n`);
  await fails(['eval', path], 65, `${path}:3: "want" must be a string, the wanted answer`);
  await fails(['eval', file('set.jsonl', `${good}{\n`)], 65, `${path}:2: the line is not valid JSON; expected one JSON object a line`);
  await fails(['eval', file('set.jsonl', '\n')], 65, `${path} holds no cases; expected one JSON object a line`);
});

test('doctor reports what it looked at, and never fails over what is missing', async () => {
  const { code, stdout, stderr } = await inferd(['doctor', '--json'], { env: { PATH: '/nonexistent' } });
  assert.equal(stderr, '');
  const report = JSON.parse(stdout) as {
    ok: boolean;
    use: { backend: string | null };
    checks: { name: string; state: string; advice?: string }[];
  };
  assert.equal(code, report.ok ? 0 : 69);
  assert.equal(report.ok, report.use.backend === 'cpu');
  const named = new Map(report.checks.map((c) => [c.name, c]));
  for (const name of ['node', 'processor', 'memory', 'native addon', 'cmake', 'C++ compiler', 'NVIDIA GPU', 'libcuda', 'nvcc', 'model'])
    assert.ok(named.has(name), name);
  assert.match(named.get('cmake')?.advice ?? '', /install cmake/);
  assert.equal(named.get('nvcc')?.state, 'missing');
  const bad = await inferd(['doctor', '--set', 'server.port=x']);
  assert.equal(bad.code, 69);
  assert.match(bad.stdout, /^!! +configuration .*\n +-> --set server\.port: server\.port = "x" is not allowed/m);
});

test('a stack trace is printed with --verbose only', async () => {
  const { stderr } = await inferd(['status', '--verbose']);
  assert.match(stderr, /^inferd: No inferd daemon.*\n.*Error: .*\n +at /);
});

test('output that cannot be written is one sentence and 69', async () => {
  const readOnly = openSync(file('full.txt', ''), 'r');
  const child = spawn(process.execPath, [main, '--help'], { stdio: ['ignore', readOnly, 'pipe'] });
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const code = await new Promise((resolve) => child.on('close', resolve));
  closeSync(readOnly);
  assert.deepEqual({ code, stderr }, { code: 69, stderr: 'inferd: The output cannot be written (EBADF); check where it goes\n' });
});

test('an empty prompt on stdin is bad data', async () => {
  const { code, stderr } = await inferd(['run', '-'], { stdin: ' \n' });
  assert.equal(code, 65);
  assert.equal(stderr, 'inferd: The prompt on stdin is empty; pipe some text into it\n');
});

test('nothing was left in the folders of the user', () => {
  assert.ok(!existsSync(join(home, 'run', 'inferd')) && !existsSync(join(home, '.local')));
});
