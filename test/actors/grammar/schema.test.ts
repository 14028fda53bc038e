import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { constraintGrammar } from '../../../actors/grammar/index.js';
import { packageRoot } from '../../../native/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { randomOf, TextGenerator } from '../../helpers/grammar/generate.js';
import { recognises } from '../../helpers/grammar/recognise.js';
import { defaultLimits, validatorOf } from '../../helpers/grammar/validator.js';

interface Fixture {
  readonly name: string;
  readonly schema: unknown;
  readonly valid: readonly unknown[];
}

const fixtures = readFileSync(join(packageRoot(), 'test/fixtures/schemas/ordinary.jsonl'), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Fixture);

const TEXTS = 60;

const compact = (value: unknown): string => JSON.stringify(value);
/** Compact, or with the spaces that values have where they are compared. */
const spellings = (value: unknown): readonly string[] => [
  compact(value),
  JSON.stringify(value, null, 1)
    .replace(/([[{])\n */g, '$1')
    .replace(/\n *([\]}])/g, '$1')
    .replace(/\n */g, ' '),
];

describe('a grammar of an ordinary schema', () => {
  for (const { name, schema, valid } of fixtures) {
    test(`${name}: every text is valid, and what the schema allows is a text`, () => {
      const validate = validatorOf(schema);
      const { text } = constraintGrammar({ kind: 'json_schema', schema }, defaultLimits);
      const grammar = parseGrammar(text);
      const generator = new TextGenerator(grammar);
      const random = randomOf(7);
      let made = 0;
      for (let i = 0; i < TEXTS; i++) {
        const answer = generator.text(random);
        if (answer === null) continue;
        made++;
        const value: unknown = JSON.parse(answer);
        assert.ok(validate(value), `${answer} is not valid`);
      }
      assert.ok(made > TEXTS / 2, `${made} texts of ${TEXTS}`);
      for (const value of valid) {
        assert.ok(validate(value), `the fixture is wrong: ${compact(value)}`);
        assert.ok(
          spellings(value).some((s) => recognises(grammar, s)),
          `${compact(value)} is not a text of\n${text}`,
        );
      }
    });
  }

  test('there are a hundred of them', () => {
    assert.ok(fixtures.length >= 100);
  });

  test('white space as models write it is allowed, but not without end', () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'array', items: { type: 'integer' } }, b: { type: 'object' } },
      required: ['a'],
    };
    const grammar = parseGrammar(constraintGrammar({ kind: 'json_schema', schema }, defaultLimits).text);
    const value = { a: [1, 2], b: { c: [{}] } };
    for (const indent of [undefined, 2, 4, '\t']) assert.ok(recognises(grammar, JSON.stringify(value, null, indent)), String(indent));
    assert.ok(recognises(grammar, '{"a": [1, 2], "b": {"c": [{}]}}'));
    assert.ok(!recognises(grammar, `{"a":${' '.repeat(50)}[1]}`));
    assert.ok(!recognises(grammar, `{${'\n'.repeat(9)}"a":[1]}`));
  });
});
