/** What the metadata of a GGUF file says of its model, where files say it in several ways or leave it to their readers. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ConfigError } from '../../config/error.js';
import { configLists, ggufConfig } from '../../config/gguf/config.js';
import { readGguf } from '../../config/gguf/read.js';
import { type Meta, type TensorSpec, writeGguf } from '../helpers/native/gguf.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-config-'));
after(() => rmSync(folder, { recursive: true }));

const row: TensorSpec = { dims: [8], type: 0, data: new Uint8Array(32) };
const table: TensorSpec = { dims: [8, 2], type: 0, data: new Uint8Array(64) };

/** Of a model whose metadata says what all do, and `keys`. */
function configOf(architecture: string, keys: Record<string, Meta>, tensors: Record<string, TensorSpec> = {}): Record<string, unknown> {
  const sizes = { block_count: 1, context_length: 64, embedding_length: 8, feed_forward_length: 8, 'attention.head_count': 1 };
  const own = Object.fromEntries(Object.entries(sizes).map(([name, size]) => [`${architecture}.${name}`, size]));
  const path = writeGguf(join(folder, 'model.gguf'), {
    metadata: { 'general.architecture': architecture, ...own, ...keys },
    tensors: { 'token_embd.weight': table, ...tensors },
  });
  return ggufConfig(readGguf(path, (key) => configLists.has(key)));
}

const refuses = (message: RegExp, ...model: Parameters<typeof configOf>): void =>
  assert.throws(
    () => configOf(...model),
    (error) => error instanceof ConfigError && error.exitCode === 65 && message.test(error.message),
  );

describe('positions', () => {
  const scaling = (keys: Record<string, Meta>): unknown => configOf('llama', keys)['rope_scaling'];

  test('are divided by a factor of older files, which have no type', () => {
    assert.deepEqual(scaling({ 'llama.rope.scale_linear': 4 }), { rope_type: 'linear', factor: 4 });
    assert.deepEqual(scaling({ 'llama.rope.scaling.factor': 2 }), { rope_type: 'linear', factor: 2 });
  });

  test('are as they are for a factor of 1 or 0, and where the type says so', () => {
    for (const factor of [0, 1]) assert.equal(scaling({ 'llama.rope.scaling.factor': factor }), undefined);
    assert.equal(scaling({ 'llama.rope.scaling.factor': 4, 'llama.rope.scaling.type': 'none' }), undefined);
  });
});

test('a model of OLMo 3, which has the name of OLMo 2 and a window, is refused', () => {
  assert.equal(configOf('olmo2', {})['model_type'], 'olmo2');
  refuses(/is a model of OLMo 3/, 'olmo2', { 'olmo2.attention.sliding_window': 4096 });
});

test('biases of q, k and v alone are refused where the architecture has none', () => {
  const alone = { 'blk.0.attn_q.bias': row };
  assert.equal(configOf('llama', {}, { ...alone, 'blk.0.attn_output.bias': row })['attention_bias'], true);
  assert.equal(configOf('qwen2', {}, alone)['attention_bias'], false);
  refuses(/biases of q, k and v alone, which are not supported in llama/, 'llama', {}, alone);
});

describe('an answer', () => {
  const ends = (tokens: readonly string[], types: readonly number[]): unknown =>
    configOf('phi3', { 'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types, 'tokenizer.ggml.eos_token_id': 0 })[
      'eos_token_id'
    ];

  test('ends with control tokens of known texts, and with those that a user added', () => {
    assert.deepEqual(ends(['<|endoftext|>', '<|end|>'], [3, 3]), [0, 1]);
    assert.deepEqual(ends(['</s>', '<|end|>'], [3, 4]), [0, 1]);
    assert.deepEqual(ends(['</s>', '<|end|>'], [3, 1]), [0], 'which is ordinary text');
  });

  test('in harmony does not end with a message', () =>
    assert.deepEqual(ends(['<|return|>', '<|end|>', '<|endoftext|>'], [3, 3, 3]), [0, 2]));
});
