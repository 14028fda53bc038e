/** Random grammars and vocabularies, small enough to be hard: few letters, many ways to read a text. */
import fc from 'fast-check';
import type { Tree } from './reference.js';

const letter = fc.constantFrom('a', 'b', 'c', 'é', '漢', '😀');
const codePoint = letter.map((c) => c.codePointAt(0) ?? 0);
const range = fc.tuple(codePoint, fc.nat({ max: 2 })).map(([lo, more]): [number, number] => [lo, lo + more]);
const literal = fc.array(letter, { maxLength: 3 }).map((letters): Tree => ({ kind: 'literal', text: letters.join('') }));
const charClass = fc.record({
  kind: fc.constant('class' as const),
  negated: fc.boolean(),
  ranges: fc.array(range, { minLength: 1, maxLength: 3 }),
});

function tree(numRules: number): fc.Arbitrary<Tree> {
  const rule = fc.record({ kind: fc.constant('rule' as const), index: fc.nat({ max: numRules - 1 }) });
  return fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 4, depthSize: 'small' },
      { weight: 4, arbitrary: literal },
      { weight: 2, arbitrary: charClass },
      { weight: 2, arbitrary: rule },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant('sequence' as const), items: fc.array(tie('tree'), { maxLength: 4 }) }) },
      {
        weight: 3,
        arbitrary: fc.record({ kind: fc.constant('choice' as const), items: fc.array(tie('tree'), { minLength: 1, maxLength: 4 }) }),
      },
      {
        weight: 2,
        arbitrary: fc
          .tuple(tie('tree'), fc.nat({ max: 2 }), fc.option(fc.nat({ max: 2 }), { nil: null }))
          .map(([item, min, more]): Tree => ({ kind: 'repeat', item, min, max: more === null ? null : min + more })),
      },
    ),
  })).tree;
}

/** Rules, of which rule 0 is the root; they may be recursive in any way, ambiguous, or match nothing. */
export const rulesArbitrary: fc.Arbitrary<Tree[]> = fc
  .integer({ min: 1, max: 4 })
  .chain((n) => fc.array(tree(n), { minLength: n, maxLength: n }));

/** Tokens as byte strings (latin1): letters, and pieces of their spellings. */
export const tokensArbitrary: fc.Arbitrary<string[]> = fc.array(
  fc.tuple(fc.array(letter, { minLength: 1, maxLength: 3 }), fc.nat({ max: 3 }), fc.nat({ max: 2 })).map(([letters, from, less]) => {
    const bytes = Buffer.from(letters.join(''), 'utf8').toString('latin1');
    const start = from % bytes.length;
    return bytes.slice(start, Math.max(start + 1, bytes.length - less));
  }),
  { minLength: 3, maxLength: 40 },
);
