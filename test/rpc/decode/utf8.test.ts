import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { textOf } from '../../../rpc/decode/utf8.js';

test('valid UTF-8 of any length becomes the text that it is, also behind other bytes of its buffer', () => {
  const piece = fc.constantFrom('a', 'é', '\u200b', '\u{1f600}', '\ufeff', '\ufffd', '\0', 'text '.repeat(9));
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), fc.constantFrom(1, 3000), fc.nat(3), (pieces, times, offset) => {
      const text = pieces.join('').repeat(times);
      const bytes = Buffer.from('x'.repeat(offset) + text, 'utf8');
      assert.equal(textOf(bytes.subarray(offset)), text);
    }),
  );
});
