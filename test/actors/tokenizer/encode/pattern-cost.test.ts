import assert from 'node:assert/strict';
import { test } from 'node:test';
import { retriesAtMost } from '../../../../actors/tokenizer/encode/pattern-cost.js';

const CHARS = 4096;

test('a pattern with one run before what must match costs some times the length of the text', () => {
  for (const pattern of [
    'a+b|.',
    String.raw`\s*[\r\n]+`,
    String.raw`\s+(?!\S)`,
    String.raw`[^\r\n\p{L}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'re)?|\p{N}{1,3}`,
    ' {2,}',
    'x{2,5}y?z',
    String.raw`\u0041\x42\.[\]\-]+$`,
  ]) {
    const retries = retriesAtMost(pattern, CHARS);
    assert.ok(retries < 25 * CHARS, `${pattern}: ${retries}`);
  }
});

test('runs multiply where something must match behind them, and count once where nothing must', () => {
  assert.ok(retriesAtMost('a*a*b', CHARS) > CHARS * CHARS);
  assert.ok(retriesAtMost('a+a+a+b', CHARS) > CHARS ** 3);
  assert.ok(retriesAtMost('(a*b|c)?a*d', CHARS) > CHARS * CHARS);
  assert.ok(retriesAtMost('a+(?:b*c)?', CHARS) < 10 * CHARS);
  assert.ok(retriesAtMost('a+b*c?', CHARS) < 10);
});

test('there is no bound for groups repeated without limit, for references back, and for what is not understood', () => {
  for (const pattern of [
    '(x+x+)+y|.',
    '(?:a|b)*c',
    '(?:ab){2,9}c',
    String.raw`(a+)\1`,
    String.raw`(?<n>a)\k<n>`,
    '(?<=a)b',
    '(?>a)b',
    '(?i)a',
    'a{2,3}+',
    'a**',
    '*a',
    '[a[b]]',
    '[]a]',
    '(a',
    'a)',
    'a]',
    String.raw`\X`,
    String.raw`a\G`,
  ]) {
    assert.equal(retriesAtMost(pattern, CHARS), Number.POSITIVE_INFINITY, pattern);
  }
});

test('the bound is taken from the text of the pattern in time that does not grow out of hand', () => {
  assert.equal(retriesAtMost('('.repeat(2000), CHARS), Number.POSITIVE_INFINITY);
  assert.ok(retriesAtMost('a?'.repeat(2000), CHARS) > 0);
});
