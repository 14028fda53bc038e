import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import type { ChatMessage } from '../../../../actors/messages/requests.js';
import { demoModel, demoPath, Harness, llama2Model, llama2Path, modelFolder, oracle, oracleIds, root, writeModel } from '../harness.js';
import { piecesTokenizer, piecesVocabulary, special } from '../pieces-model.js';

interface EvalEntry {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
  readonly prompt_tokens: number;
}

const mixed = [
  'Hello, world! 12 + 34 = 46\n\n  indented\tcode  ',
  'été naïve Ünïcödé',
  '日本語のテキスト、中文文本。한국어',
  '😀👩‍👩‍👧‍👦🏳️‍🌈 flags 🇨🇾',
  '\u0000\u0001\ufeff\ufffd\u200d',
  ' <|eot_id|> and <s>x</s> [INST] hello [/INST]',
  "it's we'll I'd don't",
  '',
];

test('every prompt of the evaluation set has the number of tokens that its file states', async () => {
  const harness = await Harness.start(demoModel);
  const lines = readFileSync(join(root, 'test/fixtures/eval/demo.jsonl'), 'utf8').trim().split('\n');
  assert.ok(lines.length > 100);
  for (const line of lines) {
    const entry = JSON.parse(line) as EvalEntry;
    const ids = await harness.chat(entry.messages, entry.tools === undefined ? {} : { tools: entry.tools });
    assert.equal(ids.length, entry.prompt_tokens, line);
    assert.equal(ids.filter((i) => i === 4088).length, 1, 'the first token is written once, by the template');
  }
});

for (const [name, model, path] of [
  ['demo', demoModel, demoPath],
  ['llama2-mha', llama2Model, llama2Path],
] as const) {
  test(`raw prompts of ${name} get the ids that the Hugging Face tokenizer gives them`, async () => {
    const harness = await Harness.start(model);
    const tokenizer = oracle(path);
    for (const text of mixed) {
      for (const addSpecialTokens of [false, true]) {
        assert.deepEqual(
          await harness.encode({ kind: 'text', text, addSpecialTokens }),
          await oracleIds(tokenizer, text, addSpecialTokens),
          text,
        );
      }
    }
    const part = fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('<s>', '</s>', '<|eot_id|>', '<|', '|>', ' ', '\n', '  <s> '));
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 8 }), async (parts) => {
        const text = parts.join('');
        assert.deepEqual(await harness.encode({ kind: 'text', text, addSpecialTokens: true }), await oracleIds(tokenizer, text, true));
      }),
      { numRuns: 300 },
    );
  });
}

const flags = [
  special(400, '<|end|>', { rstrip: true }),
  special(401, '<|user|>', { rstrip: true }),
  special(402, '<|lone|>', { single_word: true }),
  special(403, '<|left|>', { lstrip: true }),
  special(404, '<|end', { lstrip: true, rstrip: true }),
  special(405, '[INST]'),
  special(406, '[/INST]'),
];

for (const spaces of ['normalizer', 'metaspace-first', 'metaspace-always'] as const) {
  test(`pieces with spaces made by ${spaces} are encoded as the Hugging Face tokenizer does, around every kind of added token`, async () => {
    const size = piecesVocabulary().length;
    const added = flags.map((f, i) => ({ ...f, id: size + i }));
    const json = piecesTokenizer({ spaces, added });
    const folder = writeModel({ 'tokenizer.json': json });
    const harness = await Harness.start(modelFolder(folder, size + added.length, { eos: [2], bos: 1 }));
    // The file's truncation to 4 tokens is a training setting and must not apply.
    const tokenizer = oracle(writeModel({ 'tokenizer.json': { ...json, truncation: null } }));
    const contents = added.map((a) => String((a as Record<string, unknown>)['content']));
    const part = fc.oneof(
      fc.constantFrom(
        ...contents,
        '<s>',
        '</s>',
        '<unk>',
        '<0x41>',
        'hello',
        ' hello',
        ' world',
        ' ',
        '  ',
        '\n',
        '\u00a0',
        '日本',
        '😀',
        '𐊀',
        'é',
        '_',
        '\u0301',
      ),
      fc.string({ unit: 'grapheme', maxLength: 4 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 7 }), fc.boolean(), async (parts, addSpecialTokens) => {
        const text = parts.join('');
        assert.deepEqual(
          await harness.encode({ kind: 'text', text, addSpecialTokens }),
          await oracleIds(tokenizer, text, addSpecialTokens),
          JSON.stringify(text),
        );
      }),
      { numRuns: 600 },
    );
  });
}

test('added tokens that are searched in normalized text are found as the Hugging Face tokenizer finds them', async () => {
  const size = piecesVocabulary().length;
  for (const spaces of ['normalizer', 'metaspace-first'] as const) {
    const added = [special(size, '<turn>', { normalized: true }), special(size + 1, '<tool>', { normalized: true, special: false })];
    const json = { ...piecesTokenizer({ spaces, added }), truncation: null };
    const folder = writeModel({ 'tokenizer.json': json });
    const harness = await Harness.start(modelFolder(folder, size + 2, { eos: [2], bos: 1 }));
    const tokenizer = oracle(folder);
    const part = fc.constantFrom('<turn>', '<tool>', '<s>', 'hello', ' ', ' hello', 'x', '<turn> <tool>');
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 7 }), async (parts) => {
        const text = parts.join('');
        assert.deepEqual(await harness.encode({ kind: 'text', text, addSpecialTokens: false }), await oracleIds(tokenizer, text), text);
      }),
      { numRuns: 200 },
    );
  }
});

test('added tokens of white space stay ordinary text, in chats too', async () => {
  const json = JSON.parse(readFileSync(join(demoPath, 'tokenizer.json'), 'utf8')) as { added_tokens: unknown[] };
  const whiteSpace = { ...special(4096, '    '), special: false };
  const folder = writeModel({
    'tokenizer.json': { ...json, added_tokens: [...json.added_tokens, whiteSpace] },
    'tokenizer_config.json': readFileSync(join(demoPath, 'tokenizer_config.json'), 'utf8'),
  });
  const harness = await Harness.start(modelFolder(folder, 4097, { eos: [4092], bos: 4088 }));
  const text = 'a    b <|eot_id|>        c';
  assert.deepEqual(await harness.encode({ kind: 'text', text, addSpecialTokens: false }), await oracleIds(oracle(folder), text));
  const ids = await harness.chat([{ role: 'user', content: 'a    b' }]);
  assert.equal(ids.filter((i) => i === 4096).length, 1);
});

test('ids are taken as they are, and refused outside the vocabulary', async () => {
  const harness = await Harness.start(demoModel);
  assert.deepEqual(await harness.encode({ kind: 'ids', ids: [0, 4095, 4088] }), [0, 4095, 4088]);
  for (const bad of [4096, -1, 1.5, Number.NaN]) {
    const failure = await harness.encodeFailure({ kind: 'ids', ids: [1, bad] });
    assert.equal(failure.kind, 'invalid_params');
    assert.deepEqual(failure.data, [{ path: 'prompt', message: `${bad} is not a token id of this model (0 .. 4095)` }]);
  }
});

test('a model without a tokenizer, or with a damaged one, is one clear sentence that names the file', async () => {
  const model = (files: Record<string, unknown>) => modelFolder(writeModel(files), 4096, { eos: [2], bos: 1 });
  await assert.rejects(Harness.start(model({})), /The model has no tokenizer: .*tokenizer\.json cannot be read/);
  await assert.rejects(Harness.start(model({ 'tokenizer.json': '{"model"' })), /The tokenizer .*tokenizer\.json cannot be used: /);
  await assert.rejects(Harness.start(model({ 'tokenizer.json': { model: { vocab: {} } } })), /its vocabulary is empty/);
  const unknownDecoder = { ...piecesTokenizer({ spaces: 'normalizer' }), decoder: { type: 'CTC' } };
  await assert.rejects(Harness.start(model({ 'tokenizer.json': unknownDecoder })), /its decoder is neither byte level nor sentencepiece/);
  const demo = readFileSync(join(demoPath, 'tokenizer.json'), 'utf8');
  await assert.rejects(
    Harness.start(model({ 'tokenizer.json': demo, 'tokenizer_config.json': '{' })),
    /tokenizer_config\.json is not valid JSON/,
  );
});
