import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Meter } from '../../../../actors/grammar/limits.js';
import { matches, nfaOf } from '../../../../actors/grammar/pattern/nfa.js';
import { ANY_NUMBER } from '../../../../actors/grammar/schema/alternatives.js';
import { numbersOf } from '../../../../actors/grammar/schema/number-text.js';
import { fitsNumber } from '../../../../actors/grammar/schema/verdict.js';
import { defaultLimits } from '../../../helpers/grammar/validator.js';

const meter = (): Meter => new Meter({ ...defaultLimits, maxStates: 1e8, deadlineMs: 60_000 });
const decimal = fc.oneof(
  fc.integer({ min: -120, max: 1200 }),
  fc.integer({ min: -99_999, max: 99_999 }).map((n) => n / 1000),
  fc.constantFrom(0, 1, 10, 100, 999, 1000, 0.1, -0.001, 99.999),
);
const bound = fc.option(fc.record({ value: decimal, exclusive: fc.boolean() }));
const written = fc.oneof(
  decimal.map(String),
  fc.tuple(decimal, fc.integer({ min: 0, max: 5 })).map(([n, d]) => n.toFixed(d)),
);

describe('the texts of numbers', () => {
  test('are those whose values fit the bounds, in every spelling without exponent', () => {
    fc.assert(
      fc.property(
        bound,
        bound,
        fc.constantFrom(true, null),
        fc.array(written, { minLength: 1, maxLength: 20 }),
        (min, max, integer, texts) => {
          const a = { ...ANY_NUMBER, min, max, integer };
          const nfa = nfaOf({ op: 'seq', items: [{ op: 'start' }, numbersOf(a, meter()), { op: 'end' }] }, meter());
          for (const text of texts) {
            // Minus zero and whole numbers with a fraction have spellings that are left out.
            if (/^-[0.]+$/.test(text) || (integer === true && text.includes('.'))) continue;
            assert.equal(matches(nfa, text, meter()), fitsNumber(Number(text), a), `${text} in ${JSON.stringify(a)}`);
          }
        },
      ),
      { numRuns: 1500 },
    );
  });

  test('with steps are multiples for a validator that divides doubles', () => {
    const step = fc.constantFrom(1, 2, 3, 7, 12, 100, 0.5, 0.25, 0.1, 0.01, 0.3, 1.5, 0.001);
    fc.assert(
      fc.property(step, bound, fc.integer({ min: -5000, max: 5000 }), (multiple, min, factor) => {
        const a = { ...ANY_NUMBER, min, multiples: [multiple] };
        let expr: ReturnType<typeof numbersOf>;
        try {
          expr = numbersOf(a, meter());
        } catch (error) {
          assert.match(String(error), /multipleOf/);
          return;
        }
        const nfa = nfaOf({ op: 'seq', items: [{ op: 'start' }, expr, { op: 'end' }] }, meter());
        for (const text of [String(factor * multiple), String(factor), String(factor / 100)]) {
          if (matches(nfa, text, meter())) assert.ok(fitsNumber(Number(text), a), `${text} is no multiple of ${multiple}`);
          else if (
            multiple >= 1 &&
            Number.isInteger(multiple) &&
            Number.isInteger(Number(text)) &&
            Object.is(Math.abs(Number(text)), Number(text))
          ) {
            assert.ok(!fitsNumber(Number(text), a), `${text} is left out of the multiples of ${multiple}`);
          }
        }
      }),
      { numRuns: 800 },
    );
  });
});
