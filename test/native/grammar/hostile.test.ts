/** Texts of strangers: wrong ones are refused with one sentence that says where, monstrous ones quickly and for a named limit. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { NativeError } from '../../../native/index.js';
import { allowed, byteTokens, refusal, vocabulary, withMatcher } from './matcher.js';

const wrong: readonly (readonly [text: string, message: string])[] = [
  ['', 'The grammar defines no rule named "root".'],
  ['start ::= "a"', 'The grammar defines no rule named "root".'],
  ['root ::= a', 'The grammar uses the rule "a" in line 1, but does not define it.'],
  ['root ::= "a"\nroot ::= "b"', 'Line 2, column 5 of the grammar: the rule "root" is defined a second time.'],
  ['root = "a"', 'Line 1, column 6 of the grammar: "::=" is expected, but "=" follows.'],
  ['root ::= "a', 'Line 1, column 12 of the grammar: a literal has no closing quote.'],
  ['root ::= "é" [a-', 'Line 1, column 17 of the grammar: a class has no closing bracket.'],
  ['root ::= [b-a]', 'Line 1, column 14 of the grammar: a range of a class ends before it starts.'],
  ['root ::= "a" )', 'Line 1, column 14 of the grammar: the end of the rule is expected, but ")" follows.'],
  ['root ::= ("a"', 'Line 1, column 14 of the grammar: ")" is expected, but the end of the text follows.'],
  ['root ::= "\\q"', 'Line 1, column 12 of the grammar: "\\" cannot stand before "q".'],
  ['root ::= "\\u12"', 'Line 1, column 15 of the grammar: an escape of 4 hexadecimal digits is expected, but """ follows.'],
  ['root ::= "\\uD800"', 'Line 1, column 17 of the grammar: an escape names no Unicode character.'],
  ['root ::= "\\U00110000"', 'Line 1, column 21 of the grammar: an escape names no Unicode character.'],
  ['root ::= "a"{2,1}', 'Line 1, column 18 of the grammar: a repetition of at least 2 and at most 1 times is impossible.'],
  ['root ::= "a"{}', 'Line 1, column 14 of the grammar: a number is expected, but "}" follows.'],
  ['root ::= "a"{99999999999}', 'Line 1, column 24 of the grammar: a repetition of more than 2147483647 times is not possible.'],
  ['root ::= "a" ::= "b"', 'Line 1, column 14 of the grammar: the end of the rule is expected, but ":" follows.'],
  ['root ::= "a" root', 'The grammar matches no text.'],
  ['root ::= []', 'The grammar matches no text.'],
];

const times = (n: number, line: (i: number) => string): string => Array.from({ length: n }, (_, i) => line(i)).join('\n');
const deeper = /nested deeper than the limit of 256/;
const states = /needs more states than the limit of 262144/;

const monstrous: readonly (readonly [name: string, text: string, message: RegExp])[] = [
  ['100,000 parentheses', `root ::= ${'('.repeat(100_000)}"a"${')'.repeat(100_000)}`, deeper],
  ['100,000 stars', `root ::= "a"${'*'.repeat(100_000)}`, deeper],
  ['200 plus signs', `root ::= "a"${'+'.repeat(200)}`, states],
  ['a count of 2^31 - 1', 'root ::= "a"{0,2147483647}', states],
  ['a count of 2^31 - 1 of nothing', 'root ::= ""{2147483647}', states],
  ['counts inside counts', 'root ::= ("a"{1,1000}){1,1000}', states],
  ['optional counts inside counts', 'root ::= ("a"{0,300}){0,300}', /too ambiguous to compile/],
  ['a literal of 900,000 bytes', `root ::= "${'a'.repeat(900_000)}"`, states],
  ['3 MB', `root ::= "a"${'#'.repeat(3 << 20)}`, /The grammar has 3145740 bytes, more than the limit of 1048576\./],
  [
    'a start with 3,000 readings',
    `root ::= r0\n${times(3000, (i) => `r${i} ::= "a" r${i}? "b" | r${i + 1}`)}\nr3000 ::= "a"`,
    /read in more than 1024 ways/,
  ],
];

const good: readonly (readonly [name: string, text: string, match: string])[] = [
  ['references that double 60 times', `root ::= r0 | "b"\n${times(60, (i) => `r${i} ::= r${i + 1} r${i + 1}`)}\nr60 ::= "a"`, 'b'],
  ['100,000 rules in a row', `root ::= r0\n${times(50_000, (i) => `r${i} ::= r${i + 1}`)}\nr50000 ::= "a"`, 'a'],
  ['200 stars', `root ::= "a"${'*'.repeat(200)}`, 'aaa'],
  ['left recursion by way of others', 'root ::= a "x"\na ::= b "y" | "q"\nb ::= c "z"\nc ::= a "w" | root', 'qwzyxzyx'],
  ['left recursion behind nothing', 'root ::= n root "a" | "b"\nn ::= "c"*', 'cbaa'],
  ['an automaton that would blow up', 'root ::= [ab]* "a" [ab]{25}', `b${'a'.repeat(26)}`],
  ['comments and lines', '# one\nroot ::= # two\n  "a" # three\n  | (\n "b" # four\n )+\n\n', 'bb'],
  ['any character', 'root ::= . .', 'é漢'],
  ['escapes', 'root ::= "\\x41\\u00e9\\U0001F600\\n\\r\\t\\\\\\"" [\\]\\-\\[\\^]{4}', 'Aé😀\n\r\t\\"]-[^'],
  ['counts', 'root ::= "a"{2} "b"{2,} "c"{0,1} "d"{1,3}', 'aabbbdd'],
];

/** The text can be taken byte by byte, and is whole. */
async function matches(text: string, match: string): Promise<boolean> {
  return withMatcher(vocabulary(byteTokens), text, (matcher) => {
    for (const byte of Buffer.from(match)) {
      const mask = matcher.mask();
      if (!((mask[byte >> 5]! >>> (byte & 31)) & 1) || !matcher.accept(byte)) return false;
    }
    return matcher.complete();
  });
}

describe('a text that is no grammar', () => {
  for (const [text, message] of wrong) {
    test(`is refused: ${JSON.stringify(text)}`, async () => {
      assert.deepEqual(await refusal(text), { code: 'usage', message });
    });
  }
});

describe('a monstrous grammar', () => {
  for (const [name, text, message] of monstrous) {
    test(`is refused for a limit: ${name}`, async () => {
      const refused = await refusal(text);
      assert.equal(refused.code === 'unsupported' || message === deeper, true, refused.code);
      assert.match(refused.message, message);
    });
  }

  test('is refused for its memory', async () => {
    assert.match((await refusal('root ::= "a"{1,1000}', { maxMemoryBytes: 10_000 })).message, /more memory than the limit of 10000 bytes/);
  });

  test('is refused once its time is over', async () => {
    const text = 'root ::= ("a"{0,300}){0,300}';
    assert.match((await refusal(text, { deadlineMs: 1 })).message, /takes longer to compile than the limit of 1 ms/);
  });
});

describe('an unusual grammar', () => {
  for (const [name, text, match] of good) {
    test(`is taken: ${name}`, async () => {
      assert.equal(await matches(text, match), true);
      assert.equal(await matches(text, `${match}\0`), false);
    });
  }
});

describe('a text with too many readings', () => {
  test('ends in an error, with nothing changed', async () => {
    await withMatcher(vocabulary(byteTokens), 'root ::= "a" | root root | root root root', (matcher) => {
      let taken = 0;
      const a = 'a'.charCodeAt(0);
      let error: NativeError | undefined;
      while (error === undefined && taken < 2000) {
        try {
          assert.deepEqual(allowed(matcher.mask()), taken === 0 ? [a] : [a, 256]);
          assert.equal(matcher.accept(a), true);
          taken++;
        } catch (thrown) {
          error = thrown as NativeError;
        }
      }
      assert.equal(error?.code, 'unsupported');
      assert.match(error?.message ?? '', /The text can be read in (more than 1024|too many) ways/);
      assert.equal(matcher.complete(), true);
      assert.throws(() => {
        matcher.mask();
        matcher.accept(a);
      }, /ways/);
    });
  });
});
