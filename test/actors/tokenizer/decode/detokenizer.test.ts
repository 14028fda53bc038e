import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { Detokenizer, decodeAll, incompleteTail, lossy } from '../../../../actors/tokenizer/decode/detokenizer.js';
import { TokenTable } from '../../../../actors/tokenizer/model/byte-decoder.js';
import { parseTokenizerJson } from '../../../../actors/tokenizer/model/tokenizer-json.js';
import { demoPath, llama2Path, oracle, oracleIds, writeModel } from '../harness.js';
import { piecesTokenizer, piecesVocabulary } from '../pieces-model.js';

function tableOf(folder: string, size: number): TokenTable {
  return new TokenTable(parseTokenizerJson(readFileSync(join(folder, 'tokenizer.json'), 'utf8')), size);
}

/** Text of the pieces as they come, and each piece. */
function streamed(table: TokenTable, ids: readonly number[], skipSpecial = false): { text: string; pieces: string[] } {
  const detokenizer = new Detokenizer(table, skipSpecial);
  const pieces = ids.map((i) => detokenizer.push(i));
  pieces.push(detokenizer.flush());
  return { text: pieces.join(''), pieces };
}

for (const [name, folder, size] of [
  ['demo', demoPath, 4096],
  ['llama2-mha', llama2Path, 320],
] as const) {
  test(`streamed text of ${name} equals the Hugging Face decoding of all tokens at once, for any ids`, async () => {
    const table = tableOf(folder, size);
    const tokenizer = oracle(folder);
    const partial = Array.from({ length: size }, (_, i) => i).filter((i) => table.texts[i] === null);
    assert.ok(partial.length >= 128);
    const anyId = fc.oneof(fc.integer({ min: 0, max: size - 1 }), fc.constantFrom(...partial));
    await fc.assert(
      fc.asyncProperty(fc.array(anyId, { maxLength: 24 }), fc.boolean(), async (ids, skipSpecial) => {
        const whole = await tokenizer.decode(ids, skipSpecial);
        assert.equal(streamed(table, ids, skipSpecial).text, whole);
        assert.equal(decodeAll(table, ids, skipSpecial), whole);
      }),
      { numRuns: 1500 },
    );
  });

  test(`text of ${name} survives encoding and streaming, emoji and CJK in whole characters`, async () => {
    const table = tableOf(folder, size);
    const tokenizer = oracle(folder);
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('😀👩‍👩‍👧‍👦🏳️‍🌈🇨🇾', '日本語 中文 한국어', '\ufeffx\ufeff', 'é'.repeat(9)),
    );
    await fc.assert(
      fc.asyncProperty(text, async (original) => {
        const { text: result, pieces } = streamed(table, await oracleIds(tokenizer, original));
        assert.equal(result, original);
        for (const piece of pieces) assert.ok(!piece.includes('\ufffd') || original.includes('\ufffd'), 'no piece shows half a character');
      }),
      { numRuns: 500 },
    );
  });
}

test('bytes held back are exactly those that may still become a character', () => {
  const decoder = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  const anyByte = fc.oneof(
    fc.integer({ min: 0, max: 255 }),
    fc.constantFrom(0xe0, 0xed, 0xf0, 0xf4, 0xc2, 0x80, 0x9f, 0xa0, 0x8f, 0x90, 0xbf, 0xf5, 0xc1),
  );
  fc.assert(
    fc.property(fc.array(anyByte, { maxLength: 6 }), fc.array(anyByte, { maxLength: 6 }), (left, right) => {
      const head = Uint8Array.from(left);
      const cut = head.length - incompleteTail(head);
      const whole = Uint8Array.from([...left, ...right]);
      assert.equal(lossy(head.subarray(0, cut)) + decoder(whole.subarray(cut)), decoder(whole));
      // Nothing is held that is already certain to be invalid: one byte more could complete it.
      if (cut < head.length) {
        const tail = [...head.subarray(cut)];
        const completions = [0x80, 0x90, 0xa0, 0x8f, 0x9f].map((b) => decoder(Uint8Array.from([...tail, b, 0x80, 0x80].slice(0, 4))));
        assert.ok(completions.some((t) => !t.startsWith('\ufffd')));
      }
    }),
    { numRuns: 3000 },
  );
});

test('pieces of a sentencepiece vocabulary become spaces, bytes and text', async () => {
  const size = piecesVocabulary().length;
  const folder = writeModel({ 'tokenizer.json': { ...piecesTokenizer({ spaces: 'normalizer' }), truncation: null } });
  const table = tableOf(folder, size);
  const tokenizer = oracle(folder);
  for (const text of ['hello world', ' hello  world ', '日本語 😀 été', 'a\nb\tc', '<0x41>', '']) {
    const ids = await oracleIds(tokenizer, text);
    assert.equal(decodeAll(table, ids, false), await tokenizer.decode(ids, false), text);
    assert.equal(decodeAll(table, ids, false), text);
    // A sequence goes on where the prompt ended, so its first space is text.
    assert.equal(streamed(table, ids).text, text === '' ? '' : ` ${text}`);
  }
  const byte = (value: number): number => 3 + value;
  assert.deepEqual(streamed(table, [byte(0xf0), byte(0x9f), byte(0x98), byte(0x80)]).pieces, ['', '', '', '😀', '']);
  assert.deepEqual(streamed(table, [byte(0xf0), byte(0x9f), byte(0x41)]).pieces, ['', '', '\ufffdA', '']);
  assert.deepEqual(streamed(table, [byte(0xe6)]).pieces, ['', '\ufffd']);
});

test('ids that name no token are nothing, special tokens are hidden or shown', () => {
  const table = tableOf(demoPath, 5000);
  assert.equal(decodeAll(table, [4999, 4092], false), '<|eot_id|>');
  assert.equal(decodeAll(table, [4999, 4092], true), '');
  // A hidden token does not break the character that goes on behind it.
  const parts = [...Buffer.from('😀')].map(
    (b) => Array.from({ length: 4096 }, (_, i) => i).find((i) => table.bytes(i).length === 1 && table.bytes(i)[0] === b)!,
  );
  assert.equal(decodeAll(table, [parts[0]!, parts[1]!, 4092, parts[2]!, parts[3]!], true), '😀');
});
