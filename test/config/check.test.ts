/**
 * The rules between options: for each, a configuration that breaks it with the exact sentence, and its neighbour that does not.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLoopback } from '../../config/check.js';
import { ConfigError, loadConfig } from '../../config/load.js';

function outcome(...sets: string[]): { problems: readonly string[]; warnings: readonly string[] } {
  try {
    return { problems: [], warnings: loadConfig({ env: {}, sets }).warnings };
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return { problems: error.problems, warnings: [] };
  }
}

const refused = (sets: string[], sentence: string) => assert.deepEqual(outcome(...sets).problems, [sentence]);
const allowed = (...sets: string[]) => assert.deepEqual(outcome(...sets), { problems: [], warnings: [] });

test('without chunked prefill the token budget of a step must hold a whole prompt', () => {
  const off = 'scheduler.enable_chunked_prefill=false';
  refused(
    [off, 'scheduler.max_num_batched_tokens=1023', 'scheduler.max_model_len=1024'],
    '--set scheduler.max_num_batched_tokens: scheduler.max_num_batched_tokens = 1023 must be at least scheduler.max_model_len = 1024 while scheduler.enable_chunked_prefill = false, because a prompt must fit into one step; raise it, lower max_model_len, or turn chunked prefill on',
  );
  allowed(off, 'scheduler.max_num_batched_tokens=1024', 'scheduler.max_model_len=1024');
  allowed('scheduler.max_num_batched_tokens=64', 'scheduler.max_model_len=1024');
});

test('the token budget must give each running sequence a token', () => {
  refused(
    ['scheduler.max_num_batched_tokens=63'],
    '--set scheduler.max_num_batched_tokens: scheduler.max_num_batched_tokens = 63 must be at least scheduler.max_num_sequences = 64, because each running sequence needs one token a step',
  );
  allowed('scheduler.max_num_batched_tokens=64');
});

test('a block holds 1 token or a multiple of 16', () => {
  for (const size of [1, 16, 32, 48, 256]) allowed(`cache.block_size=${size}`);
  for (const size of [2, 8, 15, 17, 100]) {
    refused(
      [`cache.block_size=${size}`],
      `--set cache.block_size: cache.block_size = ${size} is not allowed; expected 1 or a multiple of 16 up to 256 tokens`,
    );
  }
});

test('devices are named, once each, and the CPU is one device', () => {
  const at = '--set inference.device_ids:';
  refused(['inference.device_ids=[]'], `${at} inference.device_ids = [] is not allowed; name at least one device, for example [0]`);
  refused(['inference.device_ids=[0, 1, 0]'], `${at} inference.device_ids names device 0 twice; name each device once`);
  refused(
    ['inference.device_ids=[0, 1]', 'inference.device=cpu'],
    `${at} inference.device_ids names 2 devices, but inference.device = "cpu" is one device; use [0], or set inference.threads`,
  );
  allowed('inference.device_ids=[3]');
});

test('a model is split over 1, 2, 4 or 8 ranks, each with a device of its own but on the CPU', () => {
  for (const ranks of [1, 2, 4, 8]) allowed(`parallel.tensor_parallel_size=${ranks}`);
  refused(
    ['parallel.tensor_parallel_size=3'],
    '--set parallel.tensor_parallel_size: parallel.tensor_parallel_size = 3 is not allowed; expected 1, 2, 4 or 8',
  );
  allowed('inference.device_ids=[3, 1]', 'parallel.tensor_parallel_size=2');
  allowed('parallel.expert_parallel=true', 'parallel.tensor_parallel_size=4');
  refused(
    ['parallel.expert_parallel=true'],
    '--set parallel.expert_parallel: parallel.expert_parallel = true shares experts out over ranks, and parallel.tensor_parallel_size = 1 is one rank; set it to 2, 4 or 8',
  );
  allowed('inference.device=cpu', 'parallel.tensor_parallel_size=4');
  const at = '--set inference.device_ids:';
  refused(
    ['inference.device_ids=[0, 1]'],
    `${at} inference.device_ids names 2 devices, but parallel.tensor_parallel_size = 1 needs one for each rank; name 1 or set the size to 2`,
  );
  refused(
    ['inference.device_ids=[0]', 'inference.device=cuda', 'parallel.tensor_parallel_size=2'],
    `${at} inference.device_ids names 1 device, but parallel.tensor_parallel_size = 2 needs one for each rank; name 2 or set the size to 1`,
  );
});

test('each group has devices of its own but on the CPU', () => {
  const groups = 'parallel.data_parallel_size=2';
  allowed(groups, 'inference.device=cpu', 'parallel.tensor_parallel_size=2');
  allowed(groups, 'inference.device_ids=[0, 1, 2, 3]', 'parallel.tensor_parallel_size=2');
  refused(
    [groups, 'inference.device=cuda', 'inference.device_ids=[0]'],
    '--set inference.device_ids: inference.device_ids names 1 device, but parallel.tensor_parallel_size = 1 and data_parallel_size = 2 need one for each rank of each group; name 2',
  );
});

test('groups that share experts are several, whole, told to share them whole, and on the CPU', () => {
  const [on, two, shared] = ['parallel.enable_dp_attention=true', 'parallel.data_parallel_size=2', 'parallel.expert_parallel=true'];
  const at = '--set parallel.enable_dp_attention: parallel.enable_dp_attention = true';
  allowed(on, two, shared);
  allowed(on, two, shared, 'inference.device=cpu');
  refused([on, shared], `${at} is for groups that share experts, and parallel.data_parallel_size = 1 is one group; set it to 2 or more`);
  refused(
    [on, two, shared, 'parallel.tensor_parallel_size=4'],
    `${at} has the attention of each group whole, and parallel.tensor_parallel_size = 4 splits it; set that to 1 and data_parallel_size to 8`,
  );
  refused([on, two], `${at} has the groups share experts whole; set parallel.expert_parallel = true as well`);
  refused(
    [on, two, shared, 'inference.device=cuda', 'inference.device_ids=[0, 1]'],
    `${at} runs on the CPU only in this version; set inference.device = "cpu"`,
  );
});

test('the longest prompt leaves room for an answer', () => {
  const sets = (input: number, total: number) => [`validation.max_input_length=${input}`, `validation.max_total_tokens=${total}`];
  refused(
    sets(8, 8),
    '--set validation.max_input_length: validation.max_input_length = 8 must be less than validation.max_total_tokens = 8, because an answer needs at least one token',
  );
  allowed(...sets(7, 8));
});

test('code that comes with a model is refused with the reason', () => {
  const { problems } = outcome('inference.trust_remote_code=true');
  assert.equal(problems.length, 1);
  assert.match(problems[0] ?? '', /trust_remote_code = true is refused: inferd never runs code that comes with a model/);
});

test('an address that others can reach needs a token', () => {
  for (const host of ['0.0.0.0', '::', '192.168.1.2', 'box.example.com', '128.0.0.1']) {
    const { problems } = outcome(`server.host=${host}`);
    assert.match(problems.join('\n'), /server\.host/, host);
  }
  refused(
    ['server.host=0.0.0.0'],
    '--set server.host: server.host = "0.0.0.0" is reachable from other machines, so auth.mode = "none" is refused; set auth.mode = "token", or server.host = "127.0.0.1"',
  );
  allowed('server.host=0.0.0.0', 'auth.mode=token');
  for (const host of ['127.0.0.1', '127.8.9.1', 'localhost', '::1']) allowed(`server.host=${host}`);
  for (const host of ['127.0.0.1', '127.9.9.9', 'LOCALHOST.', '::1', '[::1]', '0:0:0:0:0:0:0:1']) assert.ok(isLoopback(host), host);
  for (const host of ['0.0.0.0', '::', '10.0.0.1', '127.1', '127.0.0.256', 'localhost.evil.com', '127.0.0.1.evil.com'])
    assert.ok(!isLoopback(host), host);
});

test('a host with a port, a path or spaces is refused', () => {
  for (const host of ['127.0.0.1:80', 'http://x', 'a b', '-x', 'a/b'])
    assert.equal(outcome(`server.host=${host}`, 'auth.mode=token').problems.length, 1, host);
});

test('kinds of authentication may be listed, each once, and "none" only alone', () => {
  for (const mode of ['none', 'token', 'ed25519', '["token"]', '["token", "ed25519"]', '["none"]'])
    assert.deepEqual(outcome(`auth.mode=${mode}`).problems, [], mode);
  for (const mode of ['[]', '["token", "token"]', '["token", "x"]', 'both'])
    assert.equal(outcome(`auth.mode=${mode}`).problems.length, 1, mode);
  refused(
    ['auth.mode=["none", "token"]'],
    '--set auth.mode: auth.mode lists "none" beside others; "none" alone asks nobody, the others alone ask everybody',
  );
  assert.equal(outcome('server.host=0.0.0.0', 'auth.mode=["none"]').problems.length, 1, 'which asks nobody');
});

test('hosts may be ranges of addresses', () => {
  for (const host of ['10.0.0.0/8', 'fd00::/8', '10.1.2.3', '[::1]'])
    assert.deepEqual(outcome(`auth.allowed_hosts=["${host}"]`).problems, [], host);
});

test('origins and hosts are literal: no wildcard, no path, no scheme where none belongs', () => {
  for (const origin of ['*', 'null', 'https://*.x', 'https://x/', 'x.com', 'HTTPS://x'])
    assert.equal(outcome(`auth.allowed_origins=["${origin}"]`).problems.length, 1, origin);
  for (const host of ['*', 'http://x', 'a b', 'x/y', '10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.0/'])
    assert.equal(outcome(`auth.allowed_hosts=["${host}"]`).problems.length, 1, host);
  allowed(
    'auth.allowed_origins=["https://x.com", "http://localhost:3000", "app://x"]',
    'auth.allowed_hosts=["box.local", "10.0.0.1", "[::1]"]',
  );
});

test('swap mode needs swap space; odd combinations and options without effect are warnings', () => {
  refused(
    ['scheduler.preemption_mode=swap'],
    '--set scheduler.preemption_mode: scheduler.preemption_mode = "swap" needs swap space; set cache.swap_space_fraction (for example 0.1) or cache.swap_space_bytes',
  );
  allowed('cache.swap_space_fraction=0.1', 'scheduler.preemption_mode=swap');
  allowed('cache.swap_space_bytes=1000000');
  assert.equal(outcome('cache.swap_space_fraction=0.1', 'cache.swap_space_bytes=1000').warnings.length, 1);
  assert.equal(outcome('cache.swap_space_fraction=0.5').warnings.length, 1);
  assert.match(
    outcome('cache.swap_space_bytes=1000', 'scheduler.preemption_mode=recompute').warnings[0] ?? '',
    /swap space has no effect while scheduler.preemption_mode = "recompute"/,
  );
  for (const set of ['inference.flush_storage=true', 'inference.api_key=hf_x'])
    assert.match(outcome(set).warnings.join(), /has no effect in this version/, set);
  const ranks = 'parallel.tensor_parallel_size=2';
  for (const way of ['own', 'nccl']) {
    const set = `parallel.all_reduce=${way}`;
    assert.match(outcome(set).warnings.join(), /all_reduce = "\w+" has no effect while parallel.tensor_parallel_size = 1/);
    assert.match(outcome(set, ranks, 'inference.device=cpu').warnings.join(), /has no effect while inference.device = "cpu"/);
    assert.deepEqual(outcome(set, ranks, 'inference.device_ids=[0, 1]').warnings, []);
  }
  assert.deepEqual(outcome('parallel.all_reduce=auto').warnings, []);
  assert.equal(outcome('auth.token_file=/x').warnings.length, 1);
  assert.equal(outcome('auth.mode=ed25519', 'auth.token_file=/x').warnings.length, 0, 'the own token counts there too');
  for (const set of ['auth.mode=token', 'auth.mode=none'])
    assert.equal(outcome(set, 'auth.trusted_keys=["k.pem"]').warnings.length, 1, set);
  assert.equal(outcome('auth.mode=["token", "ed25519"]', 'auth.trusted_keys=["k.pem"]').warnings.length, 0);
});

test('a revision cannot climb out of the cache', () => {
  for (const revision of ['../x', 'a/../b', '/etc', '', 'a b', '.hidden'])
    assert.equal(outcome(`inference.revision=${revision}`).problems.length, 1, revision);
  for (const revision of ['main', 'v1.0', 'refs/pr/1', '0e9e39f249a16976918f6564b8830bc894c89659'])
    allowed(`inference.revision=${revision}`);
});

test('several broken rules are reported together, but not a rule over a value that was refused itself', () => {
  assert.equal(outcome('cache.block_size=3', 'inference.device_ids=[]', 'auth.mode=["none", "token"]').problems.length, 3);
  assert.deepEqual(outcome('scheduler.max_num_batched_tokens=0').problems, [
    '--set scheduler.max_num_batched_tokens: scheduler.max_num_batched_tokens = 0 is not allowed; expected a whole number from 1 to 1048576 tokens',
  ]);
});
