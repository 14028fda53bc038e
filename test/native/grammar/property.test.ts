/** Random grammars over random vocabularies: masks, completeness and accepted tokens are those of the reference. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { NativeError } from '../../../native/index.js';
import { rulesArbitrary, tokensArbitrary } from './arbitrary.js';
import { addon, allowed, limits, tooAmbiguous, vocabulary } from './matcher.js';
import { gbnf, Reference, type Tree } from './reference.js';

const MAX_TEXT = 16;

/** Walks some random way through the tokens, comparing before each, as far as the text can be read in few enough ways. */
async function compare(...walk: Parameters<typeof compareAll>): Promise<void> {
  try {
    await compareAll(...walk);
  } catch (error) {
    if (!tooAmbiguous(error)) throw error;
  }
}

async function compareAll(rules: readonly Tree[], tokens: readonly string[], choices: readonly number[]): Promise<void> {
  const text = gbnf(rules);
  let grammar: number;
  try {
    grammar = await addon.compileGrammar(vocabulary(tokens), text, limits);
  } catch (error) {
    assert.equal((error as NativeError).message, 'The grammar matches no text.');
    assert.ok(!new Reference(rules, '').viable(), 'the reference finds a match');
    return;
  }
  const matcher = addon.createGrammarMatcher(grammar);
  addon.releaseGrammar(grammar);
  let read = '';
  for (const choice of choices) {
    const reference = new Reference(rules, read);
    assert.ok(reference.viable(), JSON.stringify(read));
    assert.equal(matcher.complete(), reference.complete(), `complete after ${JSON.stringify(read)}`);
    const want = tokens.flatMap((token, i) => (new Reference(rules, read + token).viable() ? [i] : []));
    if (reference.complete()) want.push(tokens.length);
    const got = allowed(matcher.mask());
    assert.deepEqual(got, want, `after ${JSON.stringify(read)}`);
    assert.equal(matcher.onlyToken(), want.length === 1 ? want[0] : -1);
    const refused = tokens.findIndex((_, i) => !want.includes(i));
    if (refused >= 0) assert.equal(matcher.accept(refused), false);
    const next = want[choice % Math.max(want.length, 1)];
    if (next === undefined || next === tokens.length || read.length > MAX_TEXT) return;
    assert.equal(matcher.accept(next), true);
    read += tokens[next] ?? '';
  }
}

describe('a grammar and the reference', () => {
  test('allow the same tokens', { timeout: 600_000 }, async () => {
    await fc.assert(fc.asyncProperty(rulesArbitrary, tokensArbitrary, fc.array(fc.nat(), { minLength: 1, maxLength: 6 }), compare), {
      numRuns: Number(process.env['GRAMMAR_RUNS'] ?? 300),
    });
  });

  test('agree on the case that a limit of 256 readings once got wrong', async () => {
    await fc.assert(fc.asyncProperty(rulesArbitrary, tokensArbitrary, fc.array(fc.nat(), { minLength: 1, maxLength: 6 }), compare), {
      seed: 1519318456,
      numRuns: 200,
    });
  });
});
