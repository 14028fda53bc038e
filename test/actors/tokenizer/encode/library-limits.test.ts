import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inProcessChars, normalizedAtOnceChars } from '../../../../actors/tokenizer/encode/library-limits.js';
import { parseTokenizerJson } from '../../../../actors/tokenizer/model/tokenizer-json.js';
import { cutKinds, demoJson, type Json, patterns, split, tokenizerWith } from '../kinds.js';
import { piecesTokenizer } from '../pieces-model.js';

const charsOf = (json: Json): number => inProcessChars(parseTokenizerJson(JSON.stringify(json)));

test('tokenizers of known patterns, and those without a pattern, take long texts in this process', () => {
  for (const [name, json] of Object.entries(cutKinds)) assert.equal(charsOf(json), 131_072, name);
  for (const spaces of ['normalizer', 'metaspace-first', 'metaspace-always'] as const)
    assert.equal(charsOf(piecesTokenizer({ spaces })), 131_072);
  assert.equal(charsOf({ ...demoJson, pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'Whitespace' }] } }), 131_072);
  assert.equal(charsOf(tokenizerWith([split(patterns.llama3), { type: 'Metaspace', replacement: '_', prepend_scheme: 'first' }])), 131_072);
});

test('a pattern that is not known but cannot backtrack far takes short texts, and any other none', () => {
  assert.equal(charsOf(tokenizerWith([split('a+b|.')])), 4096);
  assert.equal(charsOf(tokenizerWith([split('(x+x+)+y|.')])), 0);
  assert.equal(charsOf(tokenizerWith([split(patterns.llama3), split('(x+x+)+y|.')])), 0);
  assert.equal(charsOf({ ...demoJson, normalizer: { type: 'Replace', pattern: { Regex: '(x+x+)+y' }, content: '' } }), 0);
  assert.equal(charsOf({ ...demoJson, normalizer: { type: 'Replace', pattern: { String: 'a'.repeat(1000) }, content: '' } }), 0);
});

test('a model that looks at each word many times takes none', () => {
  assert.equal(charsOf({ ...demoJson, model: { ...demoJson.model, type: 'WordPiece' } }), 0);
});

test('text is normalized in the thread of the tokenizer only where that is soon done', () => {
  const most = (normalizer: Json | null): number => normalizedAtOnceChars(parseTokenizerJson(JSON.stringify({ ...demoJson, normalizer })));
  assert.equal(most({ type: 'NFC' }), 4 * 2 ** 20);
  assert.equal(most({ type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' }), 4096);
  assert.equal(most({ type: 'Replace', pattern: { Regex: '(x+x+)+y' }, content: ' ' }), 0);
});
