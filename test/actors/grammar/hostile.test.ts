import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Constraint, ConstraintError, constraintGrammar } from '../../../actors/grammar/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { defaultLimits } from '../../helpers/grammar/validator.js';

const nested = (depth: number, wrap: (inner: unknown) => unknown): unknown => {
  let schema: unknown = { type: 'string' };
  for (let i = 0; i < depth; i++) schema = wrap(schema);
  return schema;
};
const count = (n: number): readonly number[] => Array.from({ length: n }, (_, i) => i);
const named = (n: number, of: (i: number) => unknown): unknown => Object.fromEntries(count(n).map((i) => [`k${i}`, of(i)]));
const optionsOf = (n: number): unknown => count(n).map((i) => ({ properties: { [`a${i}`]: { type: 'integer' } }, required: [`a${i}`] }));
const json = (schema: unknown): Constraint => ({ kind: 'json_schema', schema });
const pattern = (source: string): Constraint => json({ type: 'string', pattern: source });
const regex = (source: string): Constraint => ({ kind: 'regex', pattern: source });
const circle = { $ref: '#/$defs/a' };

/** `refused`: must be; otherwise either is good, as long as it is said at once. */
const cases: Readonly<Record<string, { readonly of: Constraint; readonly refused?: true }>> = {
  'objects 10,000 deep': { of: json(nested(10_000, (inner) => ({ properties: { a: inner } }))), refused: true },
  'lists 10,000 deep': { of: json(nested(10_000, (inner) => ({ items: inner }))), refused: true },
  'negations 10,000 deep': { of: json(nested(10_000, (inner) => ({ not: inner }))), refused: true },
  'negations 30 deep': { of: json(nested(30, (inner) => ({ not: inner }))) },
  'alternatives 25 deep, doubling': { of: json(nested(25, (inner) => ({ anyOf: [inner, inner] }))), refused: true },
  'an enum of 10,000': { of: json({ enum: count(10_000) }), refused: true },
  'an enum of 2,000 without 1,999 of them': { of: json({ enum: count(2000), not: { enum: count(1999) } }) },
  'words without 1,000 words': { of: json({ type: 'string', not: { enum: count(1000).map((i) => `word${i}`) } }) },
  'three megabytes of schema': { of: json({ description: 'x'.repeat(3_000_000) }), refused: true },
  'three megabytes of properties': { of: json({ properties: named(150_000, () => ({ type: 'string' })) }), refused: true },
  'references that double 30 times': {
    of: json({
      $ref: '#/$defs/k0',
      $defs: named(31, (i) => (i === 30 ? { type: 'integer' } : { allOf: [{ $ref: `#/$defs/k${i + 1}` }, { $ref: `#/$defs/k${i + 1}` }] })),
    }),
  },
  'objects that double 30 times': {
    of: json({
      $ref: '#/$defs/k0',
      $defs: named(31, (i) =>
        i === 30 ? { type: 'integer' } : { properties: { a: { $ref: `#/$defs/k${i + 1}` }, b: { $ref: `#/$defs/k${i + 1}` } } },
      ),
    }),
  },
  'alternatives that multiply': { of: json({ allOf: count(12).map(() => ({ anyOf: optionsOf(4) })) }), refused: true },
  'an object of 60 that must be exactly one': { of: json({ oneOf: optionsOf(60) }) },
  'twenty dependencies': { of: json({ dependentRequired: named(20, (i) => [`k${(i + 1) % 20}`]) }) },
  'a reference to itself': { of: json({ $ref: '#' }), refused: true },
  'allOf in a circle': {
    of: json({ allOf: [circle], $defs: { a: { allOf: [{ $ref: '#/$defs/b' }] }, b: { allOf: [circle] } } }),
    refused: true,
  },
  'anyOf in a circle': { of: json({ ...circle, $defs: { a: { anyOf: [circle, { type: 'null' }] } } }), refused: true },
  'not in a circle': { of: json({ ...circle, $defs: { a: { not: circle } } }), refused: true },
  'an object that must hold itself': {
    of: json({ ...circle, $defs: { a: { type: 'object', properties: { a: circle }, required: ['a'] } } }),
    refused: true,
  },
  'a list that must hold itself': { of: json({ type: 'array', items: { $ref: '#' }, minItems: 1 }), refused: true },
  'a length of 2^31': { of: json({ type: 'string', minLength: 2 ** 31 }), refused: true },
  'a greatest length of 2^31': { of: json({ type: 'string', maxLength: 2 ** 31 }) },
  'items to the number of 2^31': { of: json({ type: 'array', minItems: 2 ** 31 }), refused: true },
  'properties to the number of 2^31': { of: json({ type: 'object', minProperties: 2 ** 31 }), refused: true },
  'containing 2^31': { of: json({ contains: { type: 'string' }, minContains: 2 ** 31 }), refused: true },
  'many counted properties': {
    of: json({ properties: named(2000, () => ({ type: 'integer' })), minProperties: 900, maxProperties: 1000 }),
    refused: true,
  },
  'many patterns of properties': { of: json({ patternProperties: named(12, () => true) }), refused: true },
  'patterns of properties that overlap': {
    of: json({ patternProperties: { '(a|b)*a(a|b){9}': true, '(a|b)*b(a|b){9}': { type: 'string' } }, additionalProperties: false }),
  },
  'a count of 2^31 in a pattern': { of: pattern('^a{2147483648}$'), refused: true },
  'counts in counts': { of: regex('(a{1,500}){1,500}'), refused: true },
  'counts in counts in counts': { of: pattern('^((a{0,99}){0,99}){0,99}$'), refused: true },
  'stars in stars': { of: pattern('^(((a*)*)*)*$') },
  'a pattern that doubles its states': { of: json({ type: 'string', pattern: '(a|b)*a(a|b){25}', not: { pattern: 'x' } }), refused: true },
  'two patterns and a length': {
    of: json({ allOf: [{ type: 'string', pattern: '(x|y)*x(x|y){12}' }, { pattern: '(y|z)*y(y|z){12}' }], maxLength: 500 }),
  },
  'groups 10,000 deep': { of: regex(`${'('.repeat(10_000)}a${')'.repeat(10_000)}`), refused: true },
  'groups 400 deep': { of: regex(`${'('.repeat(400)}a${')'.repeat(400)}`), refused: true },
  'a pattern that backtracks for ever, found in a constant': {
    of: json({ const: `${'a'.repeat(900)}!`, pattern: '^(a+)+$' }),
    refused: true,
  },
  'a backreference': { of: regex('(a)\\1'), refused: true },
  'a pattern of a million characters': { of: regex('a'.repeat(1_000_000)), refused: true },
  'a step of a prime': { of: json({ type: 'integer', multipleOf: 999_983, minimum: -1e15, maximum: 1e15 }) },
  'steps without a common one': { of: json({ allOf: [7, 11, 13, 17, 19, 23].map((multipleOf) => ({ type: 'integer', multipleOf })) }) },
  'a step of nearly nothing': { of: json({ type: 'number', multipleOf: 5e-324 }), refused: true },
  'numbers past every double': { of: json({ type: 'number', minimum: 1e308 }), refused: true },
  'choices to the number of 100,000': { of: { kind: 'choice', choices: count(100_000).map(String) }, refused: true },
  'a grammar of three megabytes': { of: { kind: 'grammar', text: 'root ::= "a"\n'.repeat(250_000) }, refused: true },
};

describe('hostile constraints are answered at once', () => {
  for (const [name, { of, refused }] of Object.entries(cases)) {
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
    assert.ok(Object.keys(cases).length >= 40);
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
