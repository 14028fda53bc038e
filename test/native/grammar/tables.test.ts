/**
 * Masks that come from token tables hold exactly the tokens that are accepted one by one. The vocabularies are large enough that tables are
 * made, and rich in tokens that run across the ends of strings, scopes and calls.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { GrammarMatcher, NativeError } from '../../../native/index.js';
import { rulesArbitrary } from './arbitrary.js';
import { addon, allowed, byteTokens, limits, tooAmbiguous, vocabulary } from './matcher.js';
import { gbnf } from './reference.js';

/** All strings of up to `length` of these pieces, and all bytes. */
function allStrings(pieces: readonly string[], length: number): string[] {
  let longest = [''];
  const all = new Set<string>(byteTokens);
  for (let n = 0; n < length; n++) {
    longest = longest.flatMap((text) => pieces.map((piece) => text + piece));
    for (const text of longest) all.add(text);
  }
  return [...all];
}

const spelled = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const letters = allStrings(['a', 'b', 'c', spelled('é'), spelled('漢')], 4);
const words = allStrings(['a', 'b', ' ', '.'], 4);
const json = allStrings(['a', '"', ':', ',', '{', '}', '0', '\\'], 4);

/** Compares mask and acceptance along some way through the grammar. */
function compare(matcher: GrammarMatcher, tokens: readonly string[], choices: readonly number[]): void {
  let read = '';
  for (const choice of choices) {
    const want = tokens.flatMap((_, i) => (matcher.wouldAccept(i) ? [i] : []));
    if (matcher.complete()) want.push(tokens.length);
    assert.deepEqual(allowed(matcher.mask()), want, `after ${JSON.stringify(read)}`);
    assert.ok(want.length > 0, `nothing goes on after ${JSON.stringify(read)}`);
    assert.equal(matcher.onlyToken(), want.length === 1 ? want[0] : -1);
    const next = want[choice % want.length] ?? 0;
    if (next === tokens.length) return;
    assert.equal(matcher.accept(next), true);
    read += tokens[next] ?? '';
  }
}

const choicesArbitrary = fc.array(fc.nat(), { minLength: 1, maxLength: 8 });

const written: readonly (readonly [name: string, text: string])[] = [
  ['any JSON', 'root ::= value\nvalue ::= obj | str | "0"\nobj ::= "{" (str ":" value ("," str ":" value)*)? "}"\nSTR'],
  [
    'no key twice',
    'root ::= obj\nvalue ::= obj | str | "0"\nobj ::= %scope("{" (pair ("," pair)*)? "}")\npair ::= %distinct{}(str) ":" value\nSTR',
  ],
  [
    'keys that are none of two',
    'root ::= obj\nobj ::= %scope("{" (pair ("," pair)*)? "}")\npair ::= %distinct{"\\"a\\"" "\\"\\""}(str) ":" (obj | str)\nSTR',
  ],
  ['few keys', 'root ::= %scope("{" (pair ("," pair)*)? "}")\npair ::= %distinct{"\\"a0\\""}("\\"" [a0]{1,2} "\\"") ":" "0"?'],
  ['keys without ends', 'root ::= %scope("{" (pair ("," pair)*)? "}")\npair ::= %distinct{"a"}([a0]{1,2}) ":" "0"'],
  [
    'keys without ends, endlessly many',
    'root ::= %scope("{" (pair ("," pair)*)? "}")\npair ::= %distinct{"a"}([a0:]+) "," %distinct{}("\\"" [^"]* "\\"" | [0a]+) ":"',
  ],
  ['keys of one scope in another', 'root ::= %scope(k "," %scope(k ("," k)*) "," k)\nk ::= %distinct{}("\\"" [a0,]{0,2} "\\"")'],
  ['distinct texts through recursion', 'root ::= %scope("{" more)\nmore ::= %distinct{}("\\"" [a0]{1,2} "\\"") ("," more | "}")'],
  ['strings of at most six', 'root ::= "{" s{0,6} "\\"" s{2,3} "\\"" "}"\ns ::= [^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\a]'],
  ['strings of at least three', 'root ::= ("\\"" s{3,} "\\"" ","?)+\ns ::= [^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\a]'],
  ['strings in a choice', 'root ::= "\\"a\\"" | "\\"" [^"]* "\\"" ":" | "\\"" [^"]{2,3} "\\"" "," root'],
  ['a string that is all there is', 'root ::= [^"]* "\\""'],
  ['a string that is all there is, by another name', 'root ::= all\nall ::= rest\nrest ::= [^0]* "0"'],
  ['a string that something closes twice', 'root ::= ("\\"" [^,]* "\\"" ",")*'],
  ['a list of lists, written from the right', 'root ::= "{" list "}"\nlist ::= "0" | "0" "," list | "{" list "}"'],
  ['a list of lists, written from the left', 'root ::= "{" list "}"\nlist ::= "0" | list "," "0" | "{" list "}"'],
];
const STR = 'str ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\a])* "\\""';

describe('a mask', () => {
  const holds = (name: string, tokens: readonly string[], text: string): void => {
    test(`holds the tokens that are accepted: ${name}`, async () => {
      const grammar = await addon.compileGrammar(vocabulary(tokens), text.replace('STR', STR), { ...limits, extensions: true });
      fc.assert(
        fc.property(choicesArbitrary, (choices) => compare(addon.createGrammarMatcher(grammar), tokens, choices)),
        { numRuns: 12 },
      );
      addon.releaseGrammar(grammar);
    });
  };
  for (const [name, text] of written) holds(name, json, text);
  holds('words between spaces', words, 'root ::= ([a-z]+ " ")+ "."');
  holds('short words between spaces', words, 'root ::= ([a-z]{1,3} " "){2,5} "."?');
  holds('words before a literal that begins with a space', words, 'root ::= ([a-z]+ " a b." | [^a]{2,} " b")+');

  test('holds the tokens that are accepted: random grammars, of which few are too ambiguous', { timeout: 600_000 }, async () => {
    const numRuns = Number(process.env['GRAMMAR_RUNS'] ?? 150);
    let gaveUp = 0;
    await fc.assert(
      fc.asyncProperty(rulesArbitrary, choicesArbitrary, async (rules, choices) => {
        let grammar: number;
        try {
          grammar = await addon.compileGrammar(vocabulary(letters), gbnf(rules), limits);
        } catch (error) {
          assert.equal((error as NativeError).message, 'The grammar matches no text.');
          return;
        }
        const matcher = addon.createGrammarMatcher(grammar);
        addon.releaseGrammar(grammar);
        try {
          compare(matcher, letters, choices);
        } catch (error) {
          if (!tooAmbiguous(error)) throw error;
          gaveUp++;
        }
      }),
      { numRuns },
    );
    assert.ok(gaveUp <= numRuns / 20, `${gaveUp} of ${numRuns} were given up`);
  });

  test('is not made of a text that a grammar reads in too many ways', async () => {
    const grammar = await addon.compileGrammar(vocabulary(letters), 'root ::= root root root? | "a"', limits);
    const matcher = addon.createGrammarMatcher(grammar);
    addon.releaseGrammar(grammar);
    const a = letters.indexOf('a');
    assert.throws(() => {
      for (let n = 0; n < 64; n++) assert.ok(matcher.accept(a) && matcher.mask().length > 0);
    }, tooAmbiguous);
  });
});
