/** The tokenizer that is made of a GGUF file's metadata gives the ids that llama.cpp gives for the same file. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { loadVocabulary } from '../../../../actors/tokenizer/encode/vocab.js';
import { ggufTokenizerJson, tokenizerLists } from '../../../../actors/tokenizer/model/gguf-tokenizer.js';
import { readModelText } from '../../../../actors/tokenizer/model/model-text.js';
import { configLists, ggufConfig } from '../../../../config/gguf/config.js';
import { readGguf } from '../../../../config/gguf/read.js';
import { type Meta, writeGguf } from '../../../helpers/native/gguf.js';
import { fixture } from '../../../helpers/native/native-engine.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-'));
after(() => rmSync(folder, { recursive: true }));

interface Sample {
  readonly text: string;
  readonly ids: readonly number[];
}

const vocabSize = (path: string): number => Number(ggufConfig(readGguf(path, (key) => configLists.has(key)))['vocab_size']);

for (const pack of ['quant-gguf-legacy', 'quant-gguf-k', 'quant-gguf-qwen2', 'quant-demo-q4k']) {
  test(`${pack} encodes every text as llama.cpp does`, async () => {
    const path = fixture('golden', pack, 'model.gguf');
    const vocabulary = await loadVocabulary(path, vocabSize(path));
    const samples = JSON.parse(readFileSync(fixture('golden', pack, 'tokens.json'), 'utf8')) as Sample[];
    assert.ok(samples.length >= 20);
    for (const { text, ids } of samples) {
      const own = await vocabulary.encode([{ id: null, text }]);
      assert.deepEqual([...vocabulary.prefix, ...own, ...vocabulary.suffix], ids, JSON.stringify(text));
    }
    vocabulary.close();
  });
}

test('the demo model in GGUF has its chat template, the texts of its special tokens and the ids that end an answer', () => {
  const path = fixture('golden', 'quant-demo-q4k', 'model.gguf');
  const text = readModelText(path, 4088, 4092, () => '?');
  assert.match(text.templates.get('default') ?? '', /bos_token/);
  assert.equal(text.specialTokens['bos_token'], '<|begin_of_text|>');
  const config = ggufConfig(readGguf(path, (key) => configLists.has(key)));
  assert.deepEqual(config['eos_token_id'], [4092, 4095]);
});

test('text is cut as DeepSeek V3 does: digits by three, runs of Chinese by themselves', async () => {
  const merges = ['1 2', '12 3', '123 4', 'Į a', 'a b', '! ab'];
  const characters = ['1', '2', '3', '4', 'ä', 'º', 'Į', 'a', 'b', '!'];
  const tokens = [...characters, ...merges.map((merge) => merge.replace(' ', ''))];
  const metadata = {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': 'deepseek-v3',
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.merges': merges,
  };
  const vocabulary = await loadVocabulary(writeGguf(join(folder, 'deepseek.gguf'), { metadata }), tokens.length);
  const cut = async (text: string): Promise<(string | undefined)[]> =>
    [...(await vocabulary.encode([{ id: null, text }]))].map((id) => tokens[id]);
  assert.deepEqual(await cut('1234'), ['123', '4']);
  assert.deepEqual(await cut('二ab'), ['ä', 'º', 'Į', 'ab']);
  assert.deepEqual(await cut('b!ab'), ['b', '!ab']);
  vocabulary.close();
});

test('tokens that a template of Phi-3 writes take the white space behind them, but for three', () => {
  const tokens = ['<unk>', '<s>', '</s>', '<|endoftext|>', '<|user|>', '<|end|>', 'a'];
  const stripping = (architecture: string): string[] => {
    const metadata = {
      'general.architecture': architecture,
      'tokenizer.ggml.model': 'llama',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': [2, 3, 3, 3, 3, 4, 1],
    };
    const json = ggufTokenizerJson(readGguf(writeGguf(join(folder, 'phi3.gguf'), { metadata }), (key) => tokenizerLists.has(key)));
    const { added_tokens: added } = JSON.parse(json) as { added_tokens: readonly { content: string; rstrip: boolean }[] };
    assert.equal(added.length, 6);
    return added.filter(({ rstrip }) => rstrip).map(({ content }) => content);
  };
  assert.deepEqual(stripping('phi3'), ['</s>', '<|user|>', '<|end|>']);
  assert.deepEqual(stripping('llama'), []);
});

describe('a tokenizer that cannot be made', () => {
  const made = (metadata: Record<string, Meta>) => loadVocabulary(writeGguf(join(folder, 'tokenizer.gguf'), { metadata }), 3);
  const lists = { 'tokenizer.ggml.tokens': ['a', 'b', 'ab'], 'tokenizer.ggml.merges': ['a b'] };

  for (const kind of ['t5', 'bert', 'rwkv', 'gemma4'])
    test(`is refused by its kind ${kind}`, async () => {
      await assert.rejects(
        made({ ...lists, 'tokenizer.ggml.model': kind }),
        new RegExp(`of the kind "${kind}"; inferd knows gpt2 and llama`),
      );
    });

  test('is refused by the way in which it cuts text', async () => {
    const metadata = { ...lists, 'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'chatglm-bpe' };
    await assert.rejects(made(metadata), /cuts text in the way "chatglm-bpe", which is not supported; inferd knows llama3/);
  });

  test('is refused without its lists', async () => {
    await assert.rejects(made({ 'tokenizer.ggml.model': 'gpt2' }), /lacks the list tokenizer\.ggml\.tokens/);
  });
});
