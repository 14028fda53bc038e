import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Tokenizer } from 'tokenizers';
import { charsOfAnId } from '../../../../actors/tokenizer/encode/least-ids.js';
import { parseTokenizerJson } from '../../../../actors/tokenizer/model/tokenizer-json.js';
import { oracleIds } from '../harness.js';
import { cutKinds, demoJson, type Json, oddText } from '../kinds.js';
import { piecesTokenizer } from '../pieces-model.js';

const bound = (json: Json): number => charsOfAnId(parseTokenizerJson(JSON.stringify(json)));

const kinds: Readonly<Record<string, Json>> = {
  ...cutKinds,
  'Llama 2': { ...piecesTokenizer({ spaces: 'normalizer' }), truncation: null },
  'Llama 2 with a Metaspace': { ...piecesTokenizer({ spaces: 'metaspace-first' }), truncation: null },
};

for (const [name, json] of Object.entries(kinds)) {
  test(`no text has fewer ids than the bound says in a tokenizer of the kind of ${name}`, async () => {
    const plain = { ...json, post_processor: null, added_tokens: [] };
    const chars = bound(plain);
    assert.ok(chars < 200, `${chars}`);
    const library = Tokenizer.fromString(JSON.stringify(plain));
    await fc.assert(
      fc.asyncProperty(fc.oneof(oddText, fc.constant('\u03b1\u0313\u0300\u0345'.repeat(9))), async (text) => {
        assert.ok((await oracleIds(library, text)).length >= Math.ceil(text.length / chars), text);
      }),
      { numRuns: 300 },
    );
  });
}

const vocab = demoJson.model['vocab'] as Json;
const others: Readonly<Record<string, Json>> = {
  'a byte without a token': { ...demoJson, model: { ...demoJson.model, vocab: { ...vocab, a: undefined } } },
  'a byte that only a control token spells': { ...demoJson, added_tokens: [{ id: 64, content: 'a', special: true }] },
  'a normalizer that drops text': { ...demoJson, normalizer: { type: 'StripAccents' } },
  'a replacement that is shorter': { ...demoJson, normalizer: { type: 'Replace', pattern: { String: 'ab' }, content: 'a' } },
  'words whose white space is dropped': { ...demoJson, pre_tokenizer: { type: 'WhitespaceSplit' } },
  'another model': { ...demoJson, model: { ...demoJson.model, type: 'Unigram' } },
};
for (const [name, json] of Object.entries(others)) {
  test(`nothing is known of a tokenizer with ${name}`, () => {
    assert.equal(bound(json), Number.POSITIVE_INFINITY);
  });
}
