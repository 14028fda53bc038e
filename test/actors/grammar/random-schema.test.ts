import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ConstraintError, constraintGrammar } from '../../../actors/grammar/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { randomOf, TextGenerator } from '../../helpers/grammar/generate.js';
import { randomSchema } from '../../helpers/grammar/random-schema.js';
import { defaultLimits, validatorOf } from '../../helpers/grammar/validator.js';

/** The validator tries every branch of an anyOf at each level of a schema that holds itself: three branches and 40 levels take it for ever. */
const DEEPEST_JUDGED = 8;

const depthOf = (value: unknown): number =>
  typeof value === 'object' && value !== null ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0;

test('every text of the grammar of a random schema is valid, or the schema is refused with a sentence', () => {
  let accepted = 0;
  let refused = 0;
  fc.assert(
    fc.property(randomSchema, fc.integer(), (schema, seed) => {
      let text: string;
      try {
        ({ text } = constraintGrammar({ kind: 'json_schema', schema }, { ...defaultLimits, maxValueDepth: 3 }));
      } catch (error) {
        assert.ok(error instanceof ConstraintError, String(error));
        assert.match(error.message, /^[A-Z].*\.$/);
        refused++;
        return;
      }
      accepted++;
      const validate = validatorOf(schema);
      const generator = new TextGenerator(parseGrammar(text));
      const random = randomOf(seed);
      for (let i = 0; i < 10; i++) {
        const answer = generator.text(random);
        if (answer === null) continue;
        const value: unknown = JSON.parse(answer);
        if (depthOf(value) <= DEEPEST_JUDGED) assert.ok(validate(value), `${answer} is not valid`);
      }
    }),
    { numRuns: 300 },
  );
  assert.ok(accepted > refused, `${accepted} accepted, ${refused} refused`);
});
