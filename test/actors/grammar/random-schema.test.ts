import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ConstraintError, constraintGrammar } from '../../../actors/grammar/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { randomOf, TextGenerator } from '../../helpers/grammar/generate.js';
import { randomSchema } from '../../helpers/grammar/random-schema.js';
import { defaultLimits, validatorOf } from '../../helpers/grammar/validator.js';

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
        if (answer !== null) assert.ok(validate(JSON.parse(answer)), `${answer} is not valid`);
      }
    }),
    { numRuns: 300 },
  );
  assert.ok(accepted > refused, `${accepted} accepted, ${refused} refused`);
});
