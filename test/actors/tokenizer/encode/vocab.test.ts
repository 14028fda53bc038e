import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { InferdError } from '../../../../actors/messages/errors.js';
import { TooManyIds } from '../../../../actors/tokenizer/encode/library-encoder.js';
import { loadVocabulary, type Vocabulary } from '../../../../actors/tokenizer/encode/vocab.js';
import { demoPath, oracle, oracleIds, writeModel } from '../harness.js';
import { cutKinds, type Json, split, tokenizerWith } from '../kinds.js';
import { piecesTokenizer, piecesVocabulary } from '../pieces-model.js';

const folderOf = (json: Json): string => writeModel({ 'tokenizer.json': json });

async function ids(vocabulary: Vocabulary, text: string, options = {}): Promise<number[]> {
  return [...(await vocabulary.encode(vocabulary.split(text), options))];
}

const long = fc
  .array(
    fc.constantFrom(
      'The story of ',
      '你好，世界。',
      ' \n\n',
      "it's ",
      '12345 ',
      '<|eot_id|>',
      'e\u0301 ',
      ' '.repeat(500),
      'x'.repeat(5000),
    ),
    {
      minLength: 20,
      maxLength: 60,
    },
  )
  .map((parts) => parts.join('').repeat(8));

for (const name of ['Llama 3', 'Qwen 2', 'GPT-2', 'DeepSeek V3']) {
  test(`long prompts with control tokens have the ids of one call in a tokenizer of the kind of ${name}`, async (t) => {
    const folder = folderOf(cutKinds[name] ?? {});
    const vocabulary = await loadVocabulary(folder, 4096);
    t.after(() => vocabulary.close());
    const library = oracle(folder);
    await fc.assert(
      fc.asyncProperty(long, async (text) => assert.deepEqual(await ids(vocabulary, text), await oracleIds(library, text))),
      { numRuns: 10 },
    );
  });
}

test('text that is too long for this process, and text of a pattern that backtracks, have the ids of one call too', async (t) => {
  const pieces = { ...piecesTokenizer({ spaces: 'metaspace-first' }), truncation: null };
  for (const [json, size, text] of [
    [cutKinds['Llama 3'] ?? {}, 4096, `Once ${'x'.repeat(200_000)} <|eot_id|>${' '.repeat(140_000)}x`],
    [pieces, piecesVocabulary().length, 'hello world '.repeat(15_000)],
    [tokenizerWith([split('a+b|.')]), 4096, 'aab ab<|eot_id|>'.repeat(400)],
    [tokenizerWith([split('(x+x+)+y|.')]), 4096, 'xxxxy the <|eot_id|>'],
  ] as const) {
    const folder = folderOf(json);
    const vocabulary = await loadVocabulary(folder, size);
    t.after(() => vocabulary.close());
    assert.deepEqual(await ids(vocabulary, text), await oracleIds(oracle(folder), text));
  }
});

test('runs of any length are answered with ids or with one error, and others are encoded meanwhile', async (t) => {
  const vocabulary = await loadVocabulary(demoPath, 4096);
  t.after(() => vocabulary.close());
  for (const unit of [' ', 'a', '1', '\u200b', '\u0301']) {
    await assert.rejects(ids(vocabulary, unit.repeat(12_000_000)), (error) => {
      return error instanceof InferdError && error.failure.kind === 'invalid_params' && /at most 4194304 bytes/.test(error.message);
    });
  }
  assert.equal((await ids(vocabulary, 'Hello')).length, 1);
});

test('nothing is encoded behind the first ids that are too many, and long runs are known to be too many at once', async (t) => {
  const vocabulary = await loadVocabulary(demoPath, 4096);
  t.after(() => vocabulary.close());
  let asked = 0;
  const wanted = (): boolean => ++asked > 0;
  const atLeast = async (text: string, maxIds: number): Promise<number> => {
    const error = await ids(vocabulary, text, { maxIds, wanted }).catch((why: unknown) => why);
    assert.ok(error instanceof TooManyIds);
    return error.atLeast;
  };
  const words = 'The story of the day. '.repeat(180_000);
  assert.ok((await atLeast(words, 300_000)) > 300_000);
  assert.ok(asked < 60, `${asked} slices of 121 were begun`);
  asked = 0;
  for (const unit of [' ', 'a', '1', '\u200b', '\u0301']) assert.ok((await atLeast(unit.repeat(60_000_000), 131_072)) > 131_072);
  assert.equal(asked, 0);
  assert.equal(await atLeast(`你${'<|eot_id|>'.repeat(50)}`, 50), 51);
  assert.equal((await ids(vocabulary, 'The story of the day. '.repeat(2000), { maxIds: 20_000 })).length > 0, true);
});

test('slices that nobody wants any more are not begun', async (t) => {
  const vocabulary = await loadVocabulary(demoPath, 4096);
  t.after(() => vocabulary.close());
  let asked = 0;
  await assert.rejects(
    ids(vocabulary, 'The story of the day. '.repeat(20_000), { wanted: () => ++asked < 3 }),
    (error) => error instanceof InferdError && error.failure.kind === 'cancelled',
  );
  assert.equal(asked, 3);
});

test('a lone surrogate is one U+FFFD', async (t) => {
  const vocabulary = await loadVocabulary(demoPath, 4096);
  t.after(() => vocabulary.close());
  for (const [lone, replaced] of [
    ['a\ud83d b', 'a\ufffd b'],
    ['\ude00', '\ufffd'],
    ['\ud83d<|eot_id|>\ude00', '\ufffd<|eot_id|>\ufffd'],
  ] as const) {
    assert.deepEqual(await ids(vocabulary, lone), await oracleIds(oracle(demoPath), replaced));
  }
});

test('a normalizer that might never be done refuses to load where text is normalized in the thread of the tokenizer', async () => {
  const added = [{ id: 4088, content: '<turn>', special: true, normalized: true, single_word: false, lstrip: false, rstrip: false }];
  const normalizer = (regex: string): Json => ({ type: 'Replace', pattern: { Regex: regex }, content: ' ' });
  const load = (regex: string) =>
    loadVocabulary(
      folderOf({ ...(cutKinds['Llama 3'] as Json), added_tokens: added, post_processor: null, normalizer: normalizer(regex) }),
      4096,
    );
  await assert.rejects(load('(x+x+)+y'), /its normalizer has a pattern that might never be done/);
  const vocabulary = await load(' {2,}');
  assert.equal(vocabulary.split('a  b<turn>').length, 2);
  assert.throws(
    () => vocabulary.split('a'.repeat(4097)),
    (error) => error instanceof InferdError && error.failure.kind === 'invalid_params',
  );
});
