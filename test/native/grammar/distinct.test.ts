/** %scope and %distinct against a parser written by hand for one family of grammars: objects whose keys come from a set. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { addon, allowed, limits, refusal, vocabulary } from './matcher.js';

/** Letters of the keys that the parser below knows, and the length of a text beyond which it would need longer ones. */
const LONGEST_KEY = 11;
const MAX_TEXT = LONGEST_KEY - 3;

interface Family {
  readonly name: string;
  readonly key: string;
  readonly taken: readonly string[];
  /** All keys of up to some letters, more than a test can use up. */
  readonly keys: readonly string[];
}

function words(least: number, most: number): string[] {
  let longest = [''];
  const out = least === 0 ? [''] : [];
  for (let n = 1; n <= most; n++) {
    longest = longest.flatMap((w) => [`${w}a`, `${w}b`]);
    if (n >= least) out.push(...longest);
  }
  return out;
}
const quoted = (list: readonly string[]): string[] => list.map((w) => `"${w}"`);

const families: readonly Family[] = [
  { name: 'six keys, two taken', key: '"\\"" [ab]{1,2} "\\""', taken: ['"a"', '"bb"'], keys: quoted(words(1, 2)) },
  { name: 'endlessly many keys', key: '"\\"" [ab]* "\\""', taken: ['""', '"a"'], keys: quoted(words(0, LONGEST_KEY)) },
  { name: 'endlessly many keys without quotes', key: '[ab]+', taken: ['a'], keys: words(1, LONGEST_KEY) },
  { name: 'two keys without quotes', key: '[ab]', taken: [], keys: words(1, 1) },
  { name: 'keys that start others', key: '[ab]{1,2}', taken: ['ab'], keys: words(1, 2) },
];

const grammarOf = (f: Family): string =>
  [
    'root ::= obj',
    'obj ::= %scope( "{" ( pair ("," [ ]? pair)* )? "}" )',
    `pair ::= %distinct{ ${f.taken.map((t) => JSON.stringify(t)).join(' ')} }( ${f.key} ) ":" value`,
    'value ::= obj | "0"',
  ].join('\n');

/** Parses with every choice of keys. `whole`: the text must be a match, else the beginning of one. */
function matches(family: Family, text: string, whole: boolean): boolean {
  const ends = (at: number): boolean => !whole && at === text.length;
  type Next = (at: number) => boolean;
  const object = (at: number, next: Next): boolean =>
    ends(at) || (text[at] === '{' && (ends(at + 1) || (text[at + 1] === '}' && next(at + 2)) || pair(at + 1, [], next)));
  const pair = (at: number, used: readonly string[], next: Next): boolean =>
    family.keys.some((key) => {
      if (family.taken.includes(key) || used.includes(key)) return false;
      if (!whole && key.startsWith(text.slice(at)) && text.length - at <= key.length) return true;
      return text.startsWith(key, at) && colon(at + key.length, [...used, key], next);
    });
  const colon = (at: number, used: readonly string[], next: Next): boolean =>
    ends(at) || (text[at] === ':' && value(at + 1, (end) => behind(end, used, next)));
  const value = (at: number, next: Next): boolean => ends(at) || (text[at] === '0' && next(at + 1)) || object(at, next);
  const behind = (at: number, used: readonly string[], next: Next): boolean =>
    ends(at) ||
    (text[at] === '}' && next(at + 1)) ||
    (text[at] === ',' && (pair(at + 1, used, next) || (text[at + 1] === ' ' && pair(at + 2, used, next))));
  return object(0, (at) => at === text.length);
}

const piece = fc.constantFrom('{', '}', '"', 'a', 'b', ':', ',', '0', ' ', '"a"', '"b":0', '"bb"', ':{', ':0', '0,', '},');
const tokensArbitrary = fc.array(
  fc.array(piece, { minLength: 1, maxLength: 3 }).map((p) => p.join('')),
  { minLength: 10, maxLength: 60 },
);

describe('distinct texts', () => {
  for (const family of families) {
    test(`are told apart: ${family.name}`, { timeout: 300_000 }, async () => {
      await fc.assert(
        fc.asyncProperty(tokensArbitrary, fc.array(fc.nat(), { minLength: 1, maxLength: 10 }), async (random, choices) => {
          const tokens = [...new Set(['{', '"', 'a', 'b', ':', '0', ',', '}', ...random])];
          const grammar = await addon.compileGrammar(vocabulary(tokens), grammarOf(family), { ...limits, extensions: true });
          const matcher = addon.createGrammarMatcher(grammar);
          addon.releaseGrammar(grammar);
          let read = '';
          for (const choice of choices) {
            const want = tokens.flatMap((token, i) => (matches(family, read + token, false) ? [i] : []));
            if (matches(family, read, true)) want.push(tokens.length);
            assert.deepEqual(allowed(matcher.mask()), want, `after ${JSON.stringify(read)} of ${JSON.stringify(tokens)}`);
            for (const i of tokens.keys()) assert.equal(matcher.wouldAccept(i), want.includes(i), `${tokens[i]} after ${read}`);
            const next = want[choice % Math.max(1, want.length)];
            if (next === undefined || next === tokens.length) return;
            assert.equal(matcher.accept(next), true);
            read += tokens[next] ?? '';
            if (read.length > MAX_TEXT) return;
          }
        }),
        { numRuns: Number(process.env['GRAMMAR_RUNS'] ?? 80) },
      );
    });
  }

  test('are refused in the grammars of users', async () => {
    const { code, message } = await refusal('root ::= %scope( "a" )');
    assert.equal(code, 'usage');
    assert.equal(message, 'Line 1, column 10 of the grammar: "%" is not allowed here.');
  });

  test('cannot be empty, nor hold others, nor be recursive', async () => {
    const extensions = { extensions: true };
    assert.match((await refusal('root ::= %distinct{}( "a"* )', extensions)).message, /can match the empty text/);
    assert.match((await refusal('root ::= %distinct{}( "a" %distinct{}("b") )', extensions)).message, /contains another/);
    assert.match((await refusal('root ::= %distinct{}( r )\nr ::= "a" r?', extensions)).message, /"r", which contains itself/);
  });
});
