/**
 * Finding a model and reading its files: the embedded one, a folder, the Hugging Face cache; and what is refused.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { ConfigError, loadConfig } from '../../../config/load.js';
import { listModels, type ModelFolder, resolveModelFolder } from '../../../config/models/model-folder.js';
import { packageRoot } from '../../../native/index.js';

const work = mkdtempSync(join(tmpdir(), 'inferd-models-'));
after(() => rmSync(work, { recursive: true }));
const env = { HOME: work, HF_HUB_CACHE: join(work, 'hub') };

const resolve = (...sets: string[]): ModelFolder => resolveModelFolder(loadConfig({ env: {}, sets }).config, env);

function refused(exitCode: number, pattern: RegExp, ...sets: string[]): void {
  assert.throws(
    () => resolve(...sets),
    (error) => {
      assert.ok(error instanceof ConfigError, String(error));
      assert.equal(error.exitCode, exitCode, error.message);
      assert.match(error.message, pattern);
      return true;
    },
  );
}

/** A model folder with small files; `change` edits config.json. */
function makeModel(
  folder: string,
  change: Record<string, unknown> = {},
  files: Record<string, string> = { 'model.safetensors': '12345' },
): string {
  mkdirSync(folder, { recursive: true });
  const config = {
    architectures: ['LlamaForCausalLM'],
    vocab_size: 100,
    hidden_size: 8,
    max_position_embeddings: 50,
    eos_token_id: 3,
    bos_token_id: 1,
    ...change,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'tokenizer.json'), '{}');
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

/** The same in the layout of the Hugging Face cache. */
function makeCached(id: string, commit: string, ref: string | null, change: Record<string, unknown> = {}): string {
  const repo = join(env.HF_HUB_CACHE, `models--${id.replace('/', '--')}`);
  if (ref !== null) {
    mkdirSync(join(repo, 'refs'), { recursive: true });
    writeFileSync(join(repo, 'refs', ref), commit);
  }
  return makeModel(join(repo, 'snapshots', commit), change);
}

test('"demo" is the embedded model, with the facts of its files', () => {
  const model = resolve();
  assert.equal(model.name, 'demo');
  assert.equal(model.source, 'embedded');
  assert.equal(model.path, join(packageRoot(), 'config', 'demo-model'));
  assert.equal(model.architecture, 'LlamaForCausalLM');
  assert.equal(model.vocabSize, 4096);
  assert.equal(model.hiddenSize, model.config['hidden_size']);
  assert.deepEqual(model.pooling, { mode: 'last' });
  assert.equal(model.maxPositions, 4096);
  assert.equal(model.maxModelLen, 4096);
  assert.equal(model.maxTotalTokens, 4096);
  assert.equal(model.maxInputLength, 4095);
  assert.deepEqual(model.eosTokenIds, [4089, 4092]);
  assert.equal(model.bosTokenId, 4088);
  assert.deepEqual(model.generation, { temperature: 0.6, top_p: 0.9 });
  assert.ok(model.sizeBytes > 1_000_000);
});

test('limits are the smallest of what configuration and model allow', () => {
  const m = resolve('scheduler.max_model_len=1000', 'validation.max_total_tokens=8192', 'validation.max_input_length=4096');
  assert.deepEqual([m.maxModelLen, m.maxTotalTokens, m.maxInputLength], [1000, 1000, 999]);
  const n = resolve('scheduler.max_model_len=100000', 'validation.max_total_tokens=300', 'validation.max_input_length=20');
  assert.deepEqual([n.maxModelLen, n.maxTotalTokens, n.maxInputLength], [4096, 300, 20]);
});

test('without chunked prefill the budget must hold the longest prompt of the model itself', () => {
  refused(78, /must be at least scheduler\.max_model_len = 4096 .*the model's own limit is 4096/, 'scheduler.enable_chunked_prefill=false');
});

test('a folder is taken as it is and reported by the name it was given', () => {
  const folder = makeModel(join(work, 'own'));
  const model = resolve(`inference.model_name=${folder}`);
  assert.equal(model.path, folder);
  assert.equal(model.name, folder);
  assert.deepEqual(model.eosTokenIds, [3]);
  assert.equal(model.sizeBytes, 5);
  assert.equal(resolve(`inference.model_name=${folder}`, 'inference.served_model_name=mine').name, 'mine');
  assert.equal(resolve('inference.model_name=~/own').path, folder);
});

test('generation_config.json decides the end ids, and ids outside of the vocabulary are dropped', () => {
  const generation = JSON.stringify({ eos_token_id: [7, 100, -1, 'x', 9], temperature: 'hot', top_k: 5 });
  const folder = makeModel(
    join(work, 'generation'),
    {},
    { 'a.safetensors': '1', 'b.safetensors': '22', 'generation_config.json': generation },
  );
  const model = resolve(`inference.model_name=${folder}`);
  assert.deepEqual(model.eosTokenIds, [7, 9]);
  assert.deepEqual(model.generation, { top_k: 5 });
  assert.equal(model.sizeBytes, 3);
});

test('a Hugging Face id is found in the cache by branch and by commit', () => {
  const path = makeCached('org/name', 'abc123', 'main');
  assert.equal(resolve('inference.model_name=org/name').path, path);
  assert.equal(resolve('inference.model_name=org/name', 'inference.revision=abc123').path, path);
  refused(66, /revision v2\) is neither a folder nor in the Hugging Face cache/, 'inference.model_name=org/name', 'inference.revision=v2');
});

test('a model that is not there says where it was looked for and how to get it', () => {
  refused(
    66,
    /"org\/missing" .* Hugging Face cache .*hub; download it there, with "inferd pull org\/missing"/,
    'inference.model_name=org/missing',
  );
  refused(66, /no folder "\.\/nowhere"/, 'inference.model_name=./nowhere');
});

test('names that try to leave the cache are refused, and so are links that lead out of it', () => {
  mkdirSync(join(env.HF_HUB_CACHE, 'models--x'), { recursive: true });
  for (const name of [
    '../../no-such',
    '/no/such',
    'a/../../b',
    'a/b/c',
    '...',
    'org/..x',
    '%2e%2e/x',
    'c:\\x',
    'org\\name',
    `${'a'.repeat(200)}`,
    'ｏrg/x',
  ]) {
    refused(66, /There is no folder|neither a folder/, `inference.model_name=${name}`);
  }
  const outside = makeModel(join(work, 'outside'));
  const snapshots = join(env.HF_HUB_CACHE, 'models--evil--link', 'snapshots');
  mkdirSync(snapshots, { recursive: true });
  symlinkSync(outside, join(snapshots, 'main'));
  refused(66, /neither a folder nor in/, 'inference.model_name=evil/link');
  const file = makeCached('evil/file', 'main', null);
  rmSync(join(file, 'model.safetensors'));
  symlinkSync(join(outside, 'model.safetensors'), join(file, 'model.safetensors'));
  refused(65, /leads out of the cache/, 'inference.model_name=evil/file');
});

test('formats that are not taken are refused with the reason', () => {
  const pickle = makeModel(join(work, 'pickle'), {}, { 'pytorch_model.bin': 'x' });
  refused(65, /only pickle weights .* can run code/, `inference.model_name=${pickle}`);
  refused(65, /not a valid GGUF file/, `inference.model_name=${makeModel(join(work, 'gguf'), {}, { 'm.gguf': 'x'.repeat(99) })}`);
  refused(66, /no \*\.safetensors files/, `inference.model_name=${makeModel(join(work, 'none'), {}, {})}`);
  assert.equal(resolve(`inference.model_name=${join(work, 'none')}`, 'inference.load_dummy=true').sizeBytes, 0);
});

test('broken model files are named', () => {
  const broken = (name: string, change: Record<string, unknown>) => `inference.model_name=${makeModel(join(work, name), change)}`;
  refused(65, /config\.json names no architecture/, broken('b1', { architectures: [] }));
  refused(65, /config\.json: vocab_size must be a whole number above 0/, broken('b2', { vocab_size: '100' }));
  refused(65, /max_position_embeddings must be/, broken('b3', { max_position_embeddings: -1 }));
  refused(65, /vocab_size must be a whole number above 0, at most 16777216$/, broken('large', { vocab_size: 2 ** 24 + 1 }));
  for (const key of ['hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'intermediate_size', 'head_dim'])
    for (const value of [0, -1, 1.5, '8', 2 ** 31 - 1])
      refused(65, new RegExp(`config\\.json: ${key} must be`), broken('size', { [key]: value }));
  const notJson = makeModel(join(work, 'b4'));
  writeFileSync(join(notJson, 'config.json'), '{');
  refused(65, /config\.json is not valid JSON/, `inference.model_name=${notJson}`);
  writeFileSync(join(notJson, 'config.json'), '[]');
  refused(65, /does not hold a JSON object/, `inference.model_name=${notJson}`);
  mkdirSync(join(work, 'empty'));
  refused(66, /is not a model folder: config\.json is missing/, `inference.model_name=${join(work, 'empty')}`);
  const noTokenizer = makeModel(join(work, 'b5'));
  rmSync(join(noTokenizer, 'tokenizer.json'));
  refused(66, /has no tokenizer\.json/, `inference.model_name=${noTokenizer}`);
});

test('the list names the embedded model first, then the cache, with what is wrong with each', () => {
  const root = mkdtempSync(join(work, 'list-'));
  const own = { HOME: root, HF_HOME: root };
  cpSync(makeModel(join(work, 'listed')), join(root, 'hub', 'models--a--b', 'snapshots', 'c0ffee'), { recursive: true });
  mkdirSync(join(root, 'hub', 'models--bad', 'snapshots', 'x'), { recursive: true });
  mkdirSync(join(root, 'hub', 'datasets--a--b', 'snapshots', 'x'), { recursive: true });
  const models = listModels(loadConfig({ env: {} }).config, own);
  assert.deepEqual(
    models.map((m) => [m.name, m.source, m.revision, m.problem === null]),
    [
      ['demo', 'embedded', '', true],
      ['a/b', 'Hugging Face cache', 'c0ffee', true],
      ['bad', 'Hugging Face cache', 'x', false],
    ],
  );
});

const ggufFixture = join(packageRoot(), 'test', 'fixtures', 'golden', 'quant-gguf-k', 'model.gguf');

test('a GGUF file is a model by itself, with what config.json would say', () => {
  const model = resolve(`inference.model_name=${ggufFixture}`);
  assert.equal(model.path, ggufFixture);
  assert.equal(model.source, 'file');
  assert.equal(model.architecture, 'LlamaForCausalLM');
  assert.equal(model.vocabSize, 320);
  assert.equal(model.maxPositions, 512);
  assert.deepEqual(model.eosTokenIds, [2]);
  assert.equal(model.bosTokenId, 1);
  assert.equal(model.sizeBytes, 578656);
  const { rope_scaling: rope, ...rest } = model.config as { rope_scaling: { rope_type: string; short_factor: number[] } };
  assert.equal(rope.rope_type, 'longrope');
  assert.equal(rope.short_factor.length, 32);
  assert.deepEqual(rest, {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    vocab_size: 320,
    hidden_size: 256,
    intermediate_size: 256,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    max_position_embeddings: 512,
    rms_norm_eps: Math.fround(1e-5),
    rope_theta: 500000,
    tie_word_embeddings: false,
    attention_bias: false,
    mlp_bias: false,
    bos_token_id: 1,
    eos_token_id: [2],
  });
});

test('a quantization chooses among the GGUF files of a folder, or of a model of the cache', () => {
  const cached = makeCached('org/quants', 'abc', 'main');
  for (const name of ['config.json', 'tokenizer.json', 'model.safetensors']) rmSync(join(cached, name));
  for (const name of ['m-Q4_K_M.gguf', 'm.q8_0.gguf', 'mmproj-Q4_K_M.gguf']) cpSync(ggufFixture, join(cached, name));
  mkdirSync(join(cached, 'Q6_K'));
  cpSync(ggufFixture, join(cached, 'Q6_K', 'm-00001-of-00001.gguf'));
  const path = (name: string): string => resolve(`inference.model_name=${name}`).path;
  assert.equal(path('org/quants:Q4_K_M'), join(cached, 'm-Q4_K_M.gguf'));
  assert.equal(path('org/quants:Q8_0'), join(cached, 'm.q8_0.gguf'));
  assert.equal(path('org/quants:Q6_K'), join(cached, 'Q6_K', 'm-00001-of-00001.gguf'));
  assert.equal(path(`${cached}:q4_k_m`), join(cached, 'm-Q4_K_M.gguf'));
  refused(66, /holds several GGUF files .*name one of them, or its quantization as in MODEL:Q4_K_M/, 'inference.model_name=org/quants');
  refused(66, /holds no GGUF file of Q4_K; it holds /, 'inference.model_name=org/quants:Q4_K');
  rmSync(join(cached, 'm.q8_0.gguf'));
  rmSync(join(cached, 'Q6_K'), { recursive: true });
  assert.equal(path('org/quants'), join(cached, 'm-Q4_K_M.gguf'));
  cpSync(ggufFixture, join(cached, 'x-IQ4_NL-00001-of-00002.gguf'));
  refused(66, /x-IQ4_NL-00002-of-00002\.gguf is missing, a part of the model; download it too/, 'inference.model_name=org/quants:IQ4_NL');
});

test('a GGUF file that is cut or changed anywhere is refused in one sentence, or read', () => {
  const whole = readFileSync(ggufFixture).subarray(0, 12_000);
  const path = join(work, 'cut.gguf');
  const read = (bytes: Buffer): void => {
    writeFileSync(path, bytes);
    try {
      resolve(`inference.model_name=${path}`);
    } catch (error) {
      assert.ok(error instanceof ConfigError, String(error));
    }
  };
  for (let bytes = 0; bytes < 400; bytes++) read(whole.subarray(0, bytes));
  for (let at = 0; at < 1200; at++) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ 0xff;
    read(changed);
  }
});
