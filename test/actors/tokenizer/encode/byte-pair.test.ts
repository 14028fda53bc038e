import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { Tokenizer } from 'tokenizers';
import { BytePairEncoder } from '../../../../actors/tokenizer/encode/byte-pair.js';
import { loadVocabulary } from '../../../../actors/tokenizer/encode/vocab.js';
import { parseTokenizerJson } from '../../../../actors/tokenizer/model/tokenizer-json.js';
import { demoPath, llama2Path, oracleIds } from '../harness.js';

type Json = Record<string, unknown>;

const demo = JSON.parse(readFileSync(join(demoPath, 'tokenizer.json'), 'utf8')) as Json & { model: Json };
const golden = JSON.parse(readFileSync(join(llama2Path, 'tokenizer.json'), 'utf8')) as Json & { model: Json };

function splitBy(regex: string): Json {
  return {
    type: 'Sequence',
    pretokenizers: [
      { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false },
      { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  };
}

const threeDigits = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

/** Whole words that merges do not reach. */
const wholeWords: Json = { ...(demo.model['vocab'] as Json), Ġzebras: 5000, "'Zq": 5001, 'Ã©tÃ©': 5002 };

const kinds: Readonly<Record<string, Json & { model: Json }>> = {
  'Qwen 2': { ...demo, added_tokens: [], normalizer: { type: 'NFC' } },
  'Llama 3': { ...demo, added_tokens: [], pre_tokenizer: splitBy(threeDigits) },
  'Llama 3 with words that are tokens as they stand': {
    ...demo,
    added_tokens: [],
    pre_tokenizer: splitBy(threeDigits),
    model: { ...demo.model, ignore_merges: true, vocab: wholeWords },
  },
  'GPT-2': { ...golden, added_tokens: [] },
};

/** All characters that are encoded at once. */
const agreed = [...'\t\n\r'];
for (const [first, last] of [
  [0x20, 0x7e],
  [0xa0, 0x17e],
  [0x2010, 0x2027],
] as const) {
  for (let code = first; code <= last; code++) agreed.push(String.fromCharCode(code));
}

const pieces = [
  "don't",
  "IT'S",
  "we'Ll",
  ' zebras',
  "'Zq",
  'été',
  '1234567',
  '  ',
  '\r\n\n',
  ' \n ',
  '…',
  '“quoted”',
  ' the',
  'story',
  '!?.',
  '²½ªµ',
];
const text = fc.array(fc.oneof(fc.constantFrom(...agreed), fc.constantFrom(...pieces)), { maxLength: 40 }).map((parts) => parts.join(''));

for (const [name, json] of Object.entries(kinds)) {
  test(`text in a tokenizer of the kind of ${name} gets the ids at once that the Hugging Face tokenizer gives it`, async () => {
    const encoder = BytePairEncoder.of(parseTokenizerJson(JSON.stringify(json)));
    assert.ok(encoder);
    const library = Tokenizer.fromString(JSON.stringify({ ...json, post_processor: null }));
    for (const one of [...pieces, agreed.join(' '), 'x'.repeat(64), '']) {
      assert.deepEqual(encoder.encode([one]), [await oracleIds(library, one)], one);
    }
    await fc.assert(
      fc.asyncProperty(text, async (one) => {
        const ids = encoder.encode([one]);
        if (ids === null) assert.ok(Buffer.byteLength(one) > 64, 'only a long word is left to the library');
        else assert.deepEqual(ids, [await oracleIds(library, one)]);
      }),
      { numRuns: 1000 },
    );
  });
}

test('more words than are kept change nothing', async () => {
  const encoder = BytePairEncoder.of(parseTokenizerJson(JSON.stringify(kinds['GPT-2'])));
  const library = Tokenizer.fromString(JSON.stringify({ ...kinds['GPT-2'], post_processor: null }));
  for (let first = 0; first < 10_000; first += 500) {
    const words = Array.from({ length: 500 }, (_, i) => `w${first + i}`).join(' ');
    assert.deepEqual(encoder?.encode([words]), [await oracleIds(library, words)]);
  }
});

test('long texts, long words and characters that others may class differently are left to the library', () => {
  const encoder = BytePairEncoder.of(parseTokenizerJson(JSON.stringify(kinds['GPT-2'])));
  for (const one of [
    'word '.repeat(1000),
    'x'.repeat(65),
    'é'.repeat(33),
    '日本',
    'e\u0301',
    '\u0085',
    '\ufeff',
    '\u2028',
    '\u017f',
    '😀',
  ]) {
    assert.equal(encoder?.encode(['short', one]), null, one);
  }
});

const others: Readonly<Record<string, Json>> = {
  'another normalizer': { normalizer: { type: 'Lowercase' } },
  'another pattern': { pre_tokenizer: splitBy(String.raw`\p{L}+|\s+`) },
  'a space before the text': { pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true } },
  'no cuts': { pre_tokenizer: null },
  dropout: { model: { ...golden.model, dropout: 0.1 } },
  'a suffix of words': { model: { ...golden.model, end_of_word_suffix: '</w>' } },
  'another model': { model: { type: 'WordLevel', vocab: { x: 0 }, unk_token: 'x' } },
};
for (const [name, change] of Object.entries(others)) {
  test(`a tokenizer with ${name} is left to the library`, () => {
    assert.equal(BytePairEncoder.of(parseTokenizerJson(JSON.stringify({ ...golden, ...change }))), null);
  });
}

test('a short prompt between control tokens is encoded at once, and other prompts on the thread pool', async () => {
  const vocabulary = await loadVocabulary(demoPath, 4096);
  const prompt = (plain: string) => vocabulary.split(`<|begin_of_text|>${plain}<|eot_id|>\n\n`);
  const atOnce = vocabulary.encode(prompt('Hello, world'));
  assert.ok(Array.isArray(atOnce));
  assert.equal(atOnce[0], 4088);
  const later = vocabulary.encode(prompt('Hello, 世界'));
  assert.ok(later instanceof Promise);
  assert.equal((await later)[0], 4088);
});
