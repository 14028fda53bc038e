/**
 * The configuration loader: precedence, origins, the Atoma file format, and the exact sentences of its errors.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ConfigError, type LoadedConfig, loadConfig, loadConfigText } from '../../config/load.js';
import { options } from '../../config/options.js';

const load = (text: string, extra: { sets?: string[]; env?: NodeJS.ProcessEnv } = {}): LoadedConfig =>
  loadConfigText({ name: 'a.toml', text }, { env: {}, ...extra });

/** The problems of a text, one string each. */
function problems(text: string, extra: { sets?: string[]; env?: NodeJS.ProcessEnv } = {}): readonly string[] {
  try {
    load(text, extra);
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    assert.equal(error.exitCode, 78);
    assert.equal(error.message, error.problems.join('\n'));
    return error.problems;
  }
  return [];
}

test('without any source every option has its default, and says so', () => {
  const { config, origins, file, warnings } = loadConfig({ env: {} });
  assert.equal(config.server.port, 8765);
  assert.equal(config.inference.model_name, 'demo');
  assert.equal(config.validation.max_input_length, null);
  assert.equal(file, null);
  assert.deepEqual(warnings, []);
  assert.deepEqual(
    options.filter((o) => origins.get(o.name) !== 'default'),
    [],
  );
});

test('--set wins over the environment, which wins over the file, which wins over the default', () => {
  const text = '[server]\nport = 1\nmax_connections = 1\nping_interval_s = 1\n';
  const env = { INFERD_SERVER__PORT: '2', INFERD_SERVER__MAX_CONNECTIONS: '2' };
  const { config, origins } = load(text, { env, sets: ['server.port=3', 'server.port=4'] });
  assert.equal(config.server.port, 4);
  assert.equal(config.server.max_connections, 2);
  assert.equal(config.server.ping_interval_s, 1);
  assert.equal(config.server.drain_timeout_s, 30);
  assert.equal(origins.get('server.port'), '--set server.port');
  assert.equal(origins.get('server.max_connections'), 'environment INFERD_SERVER__MAX_CONNECTIONS');
  assert.equal(origins.get('server.ping_interval_s'), 'a.toml:4');
  assert.equal(origins.get('server.drain_timeout_s'), 'default');
});

test('the configuration is frozen all the way down', () => {
  const { config } = load('[inference]\ndevice_ids = [1]\n');
  assert.ok(Object.isFrozen(config) && Object.values(config).every((s) => Object.isFrozen(s)));
  assert.ok(Object.isFrozen(config.inference.device_ids) && Object.isFrozen(config.auth.allowed_hosts));
});

test('--set takes a TOML value, or else a plain string; text options keep what looks like a number', () => {
  const { config } = load('', {
    sets: [
      'inference.revision=7',
      'inference.model_name=org/name',
      'inference.device_ids=[1, 2]',
      'parallel.tensor_parallel_size=2',
      'server.web_ui=false',
      'log.level="warn"',
    ],
    env: { INFERD_INFERENCE__SERVED_MODEL_NAME: '123', INFERD_CACHE__GPU_MEMORY_UTILIZATION: '0.25', INFERD_CACHE__SLIDING_WINDOW: '' },
  });
  assert.equal(config.inference.revision, '7');
  assert.equal(config.inference.model_name, 'org/name');
  assert.deepEqual(config.inference.device_ids, [1, 2]);
  assert.equal(config.server.web_ui, false);
  assert.equal(config.log.level, 'warn');
  assert.equal(config.inference.served_model_name, '123');
  assert.equal(config.cache.gpu_memory_utilization, 0.25);
  assert.equal(config.cache.sliding_window, null);
});

test('environment variables without a double underscore are none of ours', () => {
  assert.deepEqual(problems('', { env: { INFERD_TOKEN: 'x', INFERD_URL: 'y', OTHER_SERVER__PORT: '1' } }), []);
  assert.deepEqual(load('', { env: { INFERD_TOKEN: 'x', INFERD_CUDA: '0' } }).warnings, []);
});

test('an option in the environment with a single underscore is warned of', () => {
  const { config, warnings } = load('', { env: { INFERD_SERVER_PORT: '1', INFERD_CACHE_BLOCK_SIZE: '1' } });
  assert.equal(config.server.port, 8765);
  assert.deepEqual(warnings, [
    'environment INFERD_CACHE_BLOCK_SIZE is not read; section and key are parted by two underscores: INFERD_CACHE__BLOCK_SIZE',
    'environment INFERD_SERVER_PORT is not read; section and key are parted by two underscores: INFERD_SERVER__PORT',
  ]);
});

test('a text that is not TOML is told by its place and by the usual mistake', () => {
  const invalid = (place: string, what: string) => [`a.toml:${place}: the file is not valid TOML: ${what}`];
  const quotes = 'write text in quotes, and true and false in small letters without';
  assert.deepEqual(problems('[server]\nhost = localhost\n'), invalid('2:8', `unexpected "l"; ${quotes}`));
  assert.deepEqual(problems('[inference]\nmodel_name = /models/x\n'), invalid('2:14', `unexpected "/"; ${quotes}`));
  assert.deepEqual(problems('[server\nport = 1\n'), invalid('1:8', 'the line ends too early'));
  assert.deepEqual(problems('[server]\nport ='), invalid('2:7', 'the line ends too early'));
});

test('errors name place, key, value and what is allowed, all at once', () => {
  const text = [
    '[server]',
    'port = 99999',
    'hots = "x"',
    '',
    '[scheduler]',
    'max_num_sequences = 1.5',
    'policy = "lifo"',
    '[chache]',
    'x = 1',
  ];
  assert.deepEqual(problems(text.join('\n'), { env: { INFERD_LOG__LEVEL: 'loud' }, sets: ['server.porr=1', 'nonsense', 'foo.bar=1'] }), [
    'a.toml:3: unknown key server.hots = "x"; nearest known key: server.host',
    'a.toml:8: unknown section [chache]; nearest known section: [cache]',
    '--set server.porr: unknown key server.porr; nearest known key: server.port',
    '--set nonsense: expected section.key=value, for example --set server.port=9000',
    '--set foo.bar: unknown section [foo]; nearest known section: [log]',
    'a.toml:2: server.port = 99999 is not allowed; expected a whole number from 0 to 65535',
    'a.toml:6: scheduler.max_num_sequences = 1.5 is not allowed; expected a whole number from 1 to 4096',
    'a.toml:7: scheduler.policy = "lifo" is not allowed; expected "fcfs", "priority"',
    'environment INFERD_LOG__LEVEL: log.level = "loud" is not allowed; expected "trace", "debug", "info", "warn", "error", "fatal", "silent"',
  ]);
});

test('lines are found in dotted keys, inline tables, quoted keys and after multi-line strings', () => {
  const text = [
    'server.port = -1',
    'cache = { block_size = 0,',
    '  sliding_window = 0 }',
    '[log] # a comment',
    'level = """',
    'several',
    'lines"""',
    '"pretty" = 3',
    '[auth]',
    "allowed_hosts = [ 'a',",
    '  2 ]',
    '  "mode" = "x"',
  ].join('\n');
  assert.deepEqual(
    problems(text).map((p) => p.split(' ')[0]),
    ['a.toml:1:', 'a.toml:2:', 'a.toml:3:', 'a.toml:5:', 'a.toml:8:', 'a.toml:10:', 'a.toml:12:'],
  );
});

test('keys outside of a section and sections of the wrong kind are told apart', () => {
  assert.deepEqual(problems('port = 1\n'), ['a.toml:1: unknown key port outside of a section; nearest known key: server.port']);
  assert.deepEqual(problems('server = 3\n'), ['a.toml:1: server must be one section, written [server]']);
  assert.deepEqual(problems('[[server]]\nport = 1\n'), ['a.toml:1: server must be one section, written [server]']);
  assert.deepEqual(problems('[scheduler]\nblocks_size = 16\n'), [
    'a.toml:2: unknown key scheduler.blocks_size = 16; nearest known key: cache.block_size',
  ]);
  assert.deepEqual(problems('[scheduler]\nport = 16\n'), ['a.toml:2: unknown key scheduler.port = 16; nearest known key: server.port']);
});

test('text that is not TOML gets its line and column', () => {
  const [first] = problems('[server]\nport = = 1\n');
  assert.match(first ?? '', /^a\.toml:2:8: the file is not valid TOML: unexpected "="$/);
  assert.match(problems('a = 1\na = 2\n')[0] ?? '', /^a\.toml:2:1: the file is not valid TOML: Cannot redefine existing key/);
});

test('a secret is never printed', () => {
  for (const text of ['[inference]\napi_key = 12345678\n', '[inference]\napi_keys = "12345678"\n', '[server]\napi_key = "12345678"\n']) {
    assert.doesNotMatch(problems(text, { sets: ['inference.api_key=[12345678]'] }).join('\n'), /12345678/);
  }
  assert.doesNotMatch(problems('', { sets: ['api_key=12345678'] }).join('\n'), /12345678/);
});

test('a file of Atoma Infer runs as it is, in three spellings, and says what it does not use', () => {
  const sections = `
[inference]
api_key = ""
cache_dir = "./cache"
flush_storage = false
model_name = "demo"
revision = "main"
device_ids = [0]
dtype = "bf16"
num_tokenizer_workers = 2
[cache]
block_size = 16
cache_dtype = "auto"
gpu_memory_utilization = 0.5
swap_space_fraction = 0.1
[scheduler]
max_num_batched_tokens = 1024
max_num_sequences = 32
max_model_len = 1024
delay_factor = 0.0
enable_chunked_prefill = false
block_size = 16
[validation]
best_of = 1
max_stop_sequences = 1
max_top_n_tokens = 1
max_input_length = 4096
max_total_tokens = 8192
`;
  const dotted = `${sections.replaceAll(/\[(\w+)\]\n([^[]*(?:\[0\][^[]*)?)/g, (_, s: string, body: string) =>
    body.replaceAll(/^(\w+) =/gm, `${s}.$1 =`),
  )}`;
  const inline = sections
    .trim()
    .replaceAll(/^\[(\w+)\]$/gm, '}\n$1 = {')
    .replace('}\n', '')
    .replaceAll(/^(\w+ = (?!\{).*)$/gm, '  $1,');
  for (const text of [sections, dotted, `${inline}\n}`]) {
    const { config, warnings } = load(text);
    assert.equal(config.inference.api_key, null);
    assert.equal(config.inference.dtype, 'bf16');
    assert.equal(config.scheduler.max_model_len, 1024);
    assert.equal(config.scheduler.enable_chunked_prefill, false);
    assert.equal(config.validation.max_total_tokens, 8192);
    assert.equal(config.cache.swap_space_fraction, 0.1);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0] ?? '', /^a\.toml:\d+: scheduler\.block_size is ignored: the block size is cache\.block_size; remove the key$/);
  }
});

test('num_gpu_blocks of Atoma is read as the override, unless that is set too', () => {
  assert.equal(load('[cache]\nnum_gpu_blocks = 500\nnum_cpu_blocks = 10\n').config.cache.num_gpu_blocks_override, 500);
  assert.equal(load('[cache]\nnum_gpu_blocks_override = 7\nnum_gpu_blocks = 500\n').config.cache.num_gpu_blocks_override, 7);
  assert.deepEqual(problems('[cache]\nnum_gpu_blocks = 0\n'), [
    'a.toml:2: cache.num_gpu_blocks = 0 is not allowed; expected a whole number from 2 to 16777216 blocks',
  ]);
});

test('a missing file exits with 66, a folder too', () => {
  const dir = mkdtempSync(join(tmpdir(), 'inferd-config-'));
  try {
    for (const file of [join(dir, 'none.toml'), dir]) {
      assert.throws(
        () => loadConfig({ file, env: {} }),
        (e) => e instanceof ConfigError && e.exitCode === 66 && e.message.includes(file),
      );
    }
    const file = join(dir, 'good.toml');
    writeFileSync(file, '\uFEFF[server]\r\nport = 0x1F\r\n');
    const loaded = loadConfig({ file, env: {}, defaults: { log: { level: 'silent' } } });
    assert.equal(loaded.config.server.port, 31);
    assert.equal(loaded.config.log.level, 'silent');
    assert.equal(loaded.origins.get('server.port'), `${file}:2`);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("a program's values win over all else, those it leaves out are nobody's, and wrong ones are named with their place", () => {
  const env = { INFERD_SCHEDULER__MAX_QUEUE: '5', INFERD_LOG__LEVEL: 'warn' };
  const values = { scheduler: { max_queue: 7, policy: undefined }, inference: undefined, metrics: {} };
  const { config, origins } = loadConfig({ sets: ['scheduler.max_queue=6'], env, values });
  assert.deepEqual([config.scheduler.max_queue, config.log.level, config.scheduler.policy], [7, 'warn', 'fcfs']);
  assert.equal(origins.get('scheduler.max_queue'), 'option scheduler.max_queue');
  const wrong = { scheduler: { max_queue: 'many', nope: 1 }, 'no"body': {}, cache: 3 } as unknown as typeof values;
  assert.throws(
    () => loadConfig({ env: {}, values: wrong }),
    (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      assert.deepEqual(
        error.problems.map((problem) => problem.replace(/;.*| is not allowed.*| = .*/, '')).sort(),
        [
          'option "no\\"body": unknown section ["no\\"body"]',
          'option cache: cache must be one section, written [cache]',
          'option scheduler.max_queue: scheduler.max_queue',
          'option scheduler.nope: unknown key scheduler.nope',
        ].sort(),
      );
      return true;
    },
  );
});
