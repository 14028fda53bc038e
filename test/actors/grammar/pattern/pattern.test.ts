import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Meter } from '../../../../actors/grammar/limits.js';
import { complement, dfaOf, intersect, lengthDfa } from '../../../../actors/grammar/pattern/dfa.js';
import type { Expr } from '../../../../actors/grammar/pattern/expr.js';
import { matches, nfaOf } from '../../../../actors/grammar/pattern/nfa.js';
import { parsePattern } from '../../../../actors/grammar/pattern/parse.js';
import { exprOf } from '../../../../actors/grammar/pattern/to-expr.js';
import { wholeExpr } from '../../../../actors/grammar/pattern/whole.js';
import { judgeable } from '../../../helpers/grammar/sound-regexp.js';
import { defaultLimits } from '../../../helpers/grammar/validator.js';

const meter = (): Meter => new Meter({ ...defaultLimits, maxStates: 1e7, deadlineMs: 60_000 });
const read = (source: string): Expr => parsePattern(source, defaultLimits, []);
/** An expression without anchors, over the whole text. */
const fits = (e: Expr, text: string): boolean =>
  matches(nfaOf({ op: 'seq', items: [{ op: 'start' }, e, { op: 'end' }] }, meter()), text, meter());

const atom = fc.constantFrom('a', 'b', '.', '[ab]', '[^a]', '\\d', '\\w', '1', '\\.', 'é', '😀', '\\n', '[a-c1]');
const { source } = fc.letrec<{ source: string }>((tie) => ({
  source: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    atom,
    fc.tuple(tie('source'), tie('source')).map(([a, b]) => `${a}${b}`),
    fc.tuple(tie('source'), tie('source')).map(([a, b]) => `(?:${a}|${b})`),
    fc.tuple(tie('source'), fc.constantFrom('*', '+', '?', '{2}', '{0,2}', '{1,}', '*?')).map(([a, q]) => `(?:${a})${q}`),
    tie('source').map((a) => `(^|${a})`),
    tie('source').map((a) => `^${a}`),
    tie('source').map((a) => `${a}$`),
  ),
}));
const subject = fc.string({ unit: fc.constantFrom('a', 'b', 'c', '1', '.', 'é', '😀', '\n'), maxLength: 7 });

describe('a pattern', () => {
  test('is found where ECMAScript finds it: by simulation, and as an expression of the whole text', () => {
    fc.assert(
      fc.property(source, fc.array(subject, { minLength: 1, maxLength: 8 }), (pattern, texts) => {
        const expected = new RegExp(pattern, 'u');
        const e = read(pattern);
        const whole = wholeExpr(e, true, meter());
        const again = exprOf(dfaOf(e, true, meter()), meter());
        for (const text of texts.filter(judgeable)) {
          const found = expected.test(text);
          assert.equal(matches(nfaOf(e, meter()), text, meter()), found, `${pattern} in ${JSON.stringify(text)}`);
          assert.equal(fits(whole, text), found, `whole ${pattern} in ${JSON.stringify(text)}`);
          assert.equal(fits(again, text), found, `automaton of ${pattern} in ${JSON.stringify(text)}`);
        }
      }),
      { numRuns: 600 },
    );
  });

  test('combines with another one, its contrary and lengths', () => {
    fc.assert(
      fc.property(source, source, fc.array(subject, { minLength: 1, maxLength: 6 }), (p, q, texts) => {
        const m = meter();
        const [a, b] = [dfaOf(read(p), true, m), dfaOf(read(q), true, m)];
        const all = exprOf(intersect(intersect(a, complement(b, m), m), lengthDfa(1, 5, m), m), m);
        for (const text of texts.filter(judgeable)) {
          const length = [...text].length;
          const expected = new RegExp(p, 'u').test(text) && !new RegExp(q, 'u').test(text) && length >= 1 && length <= 5;
          assert.equal(fits(all, text), expected, `${p} without ${q} in ${JSON.stringify(text)}`);
        }
      }),
      { numRuns: 300 },
    );
  });

  const refused: Readonly<Record<string, RegExp>> = {
    '(?=a)': /lookahead/,
    'a(?!b)': /negative lookahead/,
    '(?<=a)b': /lookbehind/,
    '(?<!a)b': /negative lookbehind/,
    '(a)\\1': /backreference/,
    '(?<n>a)\\k<n>': /backreference/,
    '\\bword\\b': /word boundary/,
    '\\p{L}+': /property of characters/,
    '(?i)a': /flags/,
    '(?>a)': /atomic/,
    'a++': /possessive/,
    '(a': /not closed/,
    'a)': /parenthesis too many/,
    '[a': /not closed/,
    '*a': /repeats nothing/,
    'a**': /repeats a repetition/,
    'a{3,2}': /minimum is over/,
    'a{600}': /max_repeat = 512/,
    '[z-a]': /ends before it starts/,
    '\\': /backslash/,
    '\\ud800': /surrogate/,
    '\\y': /unknown escape/,
  };
  test('that no automaton can do, or that is malformed, is refused by what is wrong with it', () => {
    for (const [pattern, why] of Object.entries(refused)) {
      assert.throws(
        () => read(pattern),
        (error: Error) => error.name === 'ConstraintError' && why.test(error.message) && error.message.endsWith('.'),
        pattern,
      );
    }
  });
});
