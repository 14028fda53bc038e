import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Tokenizer } from 'tokenizers';
import { nextCut } from '../../../../actors/messages/text-cuts.js';
import { canBeCut } from '../../../../actors/tokenizer/encode/cuts.js';
import { parseTokenizerJson } from '../../../../actors/tokenizer/model/tokenizer-json.js';
import { oracleIds } from '../harness.js';
import { cutKinds, demoJson, type Json, oddText, patterns, split, tokenizerWith } from '../kinds.js';
import { special } from '../pieces-model.js';

function parts(text: string): string[] {
  const all: string[] = [];
  for (let from = 0; from < text.length; ) {
    const to = nextCut(text, from + 1, text.length);
    all.push(text.slice(from, to));
    from = to;
  }
  return all;
}

const whiteSpace = ['    ', '\n\n', ' \n', '\u2581\u2581'].map((content, i) => ({ ...special(4096 + i, content), special: false }));

for (const [name, json] of Object.entries(cutKinds)) {
  for (const [with_, added] of [
    ['', []],
    [' with added tokens of white space', whiteSpace],
  ] as const) {
    test(`parts of a text have the ids of the whole in a tokenizer of the kind of ${name}${with_}`, async () => {
      const whole: Json = { ...json, post_processor: null, added_tokens: added };
      assert.ok(canBeCut(parseTokenizerJson(JSON.stringify(whole))));
      const library = Tokenizer.fromString(JSON.stringify(whole));
      await fc.assert(
        fc.asyncProperty(oddText, async (text) => {
          const ids: number[] = [];
          for (const part of parts(text)) ids.push(...(await oracleIds(library, part)));
          assert.deepEqual(ids, await oracleIds(library, text));
        }),
        { numRuns: 500 },
      );
    });
  }
}

test('text has cuts where words end, and none inside of runs', () => {
  assert.deepEqual(parts('The cat, the dog.\n你好，世界。x'), ['The', ' cat', ',', ' the', ' dog', '.\n你好', '，世界', '。x']);
  assert.deepEqual(parts("it's a1b2=;x"), ["it's", ' a', '1b', '2', '=;x']);
  for (const unit of [' ', 'a', '1', '\u200b', '\u0301', '\n'])
    assert.equal(nextCut(unit.repeat(1000), 1, 1000), 1000, JSON.stringify(unit));
  assert.equal(nextCut('a'.repeat(1000), 10, 20), 20, 'no farther than it is to look');
});

const others: Readonly<Record<string, Json>> = {
  'another normalizer': { ...demoJson, normalizer: { type: 'Lowercase' } },
  'another pattern': tokenizerWith([split(String.raw`\p{L}+|\s+`)]),
  'a pattern that finds numbers only': tokenizerWith([split(String.raw`\p{N}{1,3}`)]),
  'a pattern whose matches are dropped': tokenizerWith([{ ...split(patterns.llama3), behavior: 'Removed' }]),
  'a space before the text': { ...demoJson, pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, use_regex: true } },
  'no cuts of its own': { ...demoJson, pre_tokenizer: null },
  'an added token that looks at its neighbours': {
    ...demoJson,
    added_tokens: [{ ...special(4096, '  ', { single_word: true }), special: false }],
  },
};
for (const [name, json] of Object.entries(others)) {
  test(`text of a tokenizer with ${name} is not cut`, () => {
    assert.equal(canBeCut(parseTokenizerJson(JSON.stringify(json))), false);
  });
}
