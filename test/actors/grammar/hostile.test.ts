import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Constraint, ConstraintError, constraintGrammar } from '../../../actors/grammar/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { hostileConstraints } from '../../helpers/grammar/hostile-constraints.js';
import { defaultLimits } from '../../helpers/grammar/validator.js';

const json = (schema: unknown): Constraint => ({ kind: 'json_schema', schema });

describe('hostile constraints are answered at once', () => {
  for (const [name, { of, refused }] of Object.entries(hostileConstraints)) {
    test(name, () => {
      try {
        const { text } = constraintGrammar(of, defaultLimits);
        assert.equal(refused, undefined, 'it is not refused');
        assert.ok(text.length <= defaultLimits.maxGrammarBytes);
        parseGrammar(text);
      } catch (error) {
        if (!(error instanceof ConstraintError)) throw error;
        assert.match(error.message, /^[A-Z].*\.$/s);
        assert.ok(error.message.length < 600, error.message);
      }
    });
  }

  test('there are forty of them', () => {
    assert.ok(Object.keys(hostileConstraints).length >= 40);
  });

  test('work stops at the deadline', () => {
    const slow = json({ allOf: [{ type: 'string', pattern: '(x|y)*x(x|y){12}' }, { pattern: '(y|z)*y(y|z){12}' }] });
    const limits = { ...defaultLimits, deadlineMs: 1, maxStates: 1e9 };
    assert.throws(() => constraintGrammar(slow, limits), /deadline_ms = 1 /);
  });

  test('no work is begun for a text whose time is over', () => {
    const options = { endMs: performance.now() - 1 };
    assert.throws(() => constraintGrammar(json({ type: 'integer' }), defaultLimits, options), ConstraintError);
  });
});
