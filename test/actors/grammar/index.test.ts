import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Constraint, ConstraintError, constraintGrammar } from '../../../actors/grammar/index.js';
import { parseGrammar } from '../../helpers/grammar/gbnf.js';
import { recognises } from '../../helpers/grammar/recognise.js';
import { defaultLimits } from '../../helpers/grammar/validator.js';

const fits = (constraint: Constraint, text: string): boolean =>
  recognises(parseGrammar(constraintGrammar(constraint, defaultLimits).text), text);

function refusal(constraint: Constraint): ConstraintError {
  try {
    constraintGrammar(constraint, defaultLimits);
  } catch (error) {
    assert.ok(error instanceof ConstraintError, String(error));
    return error;
  }
  assert.fail(`${JSON.stringify(constraint)} is not refused`);
}
const schema = (value: unknown): Constraint => ({ kind: 'json_schema', schema: value });

describe('json_object', () => {
  const any: Constraint = { kind: 'json_object' };
  test('is any object, no key twice, as deep as the limit', () => {
    assert.ok(fits(any, '{}'));
    assert.ok(fits(any, '{"a": [1, {"b": null}], "é\\n": "\\ud83d\\ude00"}'));
    assert.ok(!fits(any, '[]'));
    assert.ok(!fits(any, '{"a":1,"a":2}'));
    assert.ok(!fits(any, '{"a":"\\ud83d"}'), 'half of a surrogate pair');
    assert.ok(!fits(any, '{"a":"\n"}'), 'a raw control character');
    assert.ok(!fits(any, '{"\\u0061":1}'), 'a key in another spelling');
    assert.ok(!fits(any, '{"a":1e999}'), 'a number past every double');
    const depth = defaultLimits.maxValueDepth;
    assert.ok(fits(any, `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`));
    assert.ok(!fits(any, `${'{"a":'.repeat(depth + 1)}1${'}'.repeat(depth + 1)}`));
  });
});

describe('regex', () => {
  test('matches the whole answer, in characters as they are', () => {
    const number: Constraint = { kind: 'regex', pattern: '\\d+|"x"' };
    assert.ok(fits(number, '42'));
    assert.ok(fits(number, '"x"'));
    assert.ok(!fits(number, '42 '));
    assert.ok(fits({ kind: 'regex', pattern: '^(?P<year>[0-9]{4})$' }, '2024'));
  });

  test('that matches nothing is refused', () => {
    assert.match(refusal({ kind: 'regex', pattern: '[]' }).message, /matches no text/);
  });
});

describe('choice', () => {
  test('is one of the texts, given twice or not', () => {
    const choice: Constraint = { kind: 'choice', choices: ['yes', 'no', 'yes', 'a"\\\n'] };
    for (const text of ['yes', 'no', 'a"\\\n']) assert.ok(fits(choice, text));
    assert.ok(!fits(choice, 'maybe'));
  });

  test('of nothing is refused', () => {
    assert.match(refusal({ kind: 'choice', choices: [] }).message, /empty/);
    assert.deepEqual(refusal({ kind: 'choice', choices: ['a', '\ud800'] }).path, [1]);
  });
});

describe('grammar', () => {
  test('is passed on as it is, without our extensions', () => {
    const text = 'root ::= "a"';
    assert.deepEqual(constraintGrammar({ kind: 'grammar', text }, defaultLimits), { text, extensions: false });
    assert.match(refusal({ kind: 'grammar', text: ' ' }).message, /empty/);
  });
});

describe('rules', () => {
  test('begin with the name of the root rule, so that several grammars can stand in one text', () => {
    const { text } = constraintGrammar(schema({ type: 'object' }), defaultLimits, { rootName: 'call-0' });
    assert.ok(text.startsWith('call-0 ::='));
    for (const line of text.trimEnd().split('\n')) assert.match(line, /^call-0(-[\w-]+)? ::= /);
    const both = `root ::= call-0 | call-1\n${text}${constraintGrammar(schema({ type: 'integer' }), defaultLimits, { rootName: 'call-1' }).text}`;
    assert.ok(recognises(parseGrammar(both), '12'));
  });
});

describe('a schema that cannot be enforced is refused with the keyword and its place', () => {
  const cases: Readonly<Record<string, readonly [unknown, RegExp, readonly (string | number)[]]>> = {
    'an unknown keyword': [
      { properties: { a: { colour: 1 } } },
      /"colour" at #\/properties\/a is not supported/,
      ['properties', 'a', 'colour'],
    ],
    'a malformed keyword': [{ minLength: -1 }, /"minLength" at # is -1; it must be a whole number/, ['minLength']],
    'an unknown type': [{ type: 'text' }, /"type" at # is "text"/, ['type']],
    'an unknown format': [{ type: 'string', format: 'isbn' }, /"format" at # asks for "isbn"/, ['format']],
    'a remote reference': [
      { items: { $ref: 'https://example.com/s.json' } },
      /"\$ref" at #\/items names "https:\/\/example.com\/s.json" outside/,
      ['items', '$ref'],
    ],
    'a dangling reference': [{ $ref: '#/$defs/none' }, /"\$ref" at # names "#\/\$defs\/none", which the schema does not have/, ['$ref']],
    'a pattern with a lookahead': [{ items: { type: 'string', pattern: '(?=a)' } }, /lookahead/, ['items', 'pattern']],
    'a schema without a value': [{ type: 'integer', minimum: 5, maximum: 4 }, /allows no value/, []],
    'a schema that is false': [false, /allows no value/, []],
    'text in place of a schema': ['{}', /must be an object, true or false/, []],
  };
  for (const [name, [value, why, path]] of Object.entries(cases)) {
    test(name, () => {
      const error = refusal(schema(value));
      assert.match(error.message, why);
      assert.match(error.message, /^[A-Z].*\.$/);
      assert.deepEqual(error.path, path);
    });
  }
});

describe('a member of a schema that JavaScript gives a meaning of its own', () => {
  const proto = (text: string): Constraint => ({ kind: 'json_text', text });
  for (const text of [
    '{"const":{"__proto__":1}}',
    '{"enum":[1,[{"__proto__":{}}]]}',
    '{"properties":{"__proto__":{"type":"integer"}}}',
    '{"properties":{"a":{"patternProperties":{"__proto__":false}}}}',
    '{"dependentRequired":{"__proto__":["a"]}}',
    '{"dependentSchemas":{"\\u005f_proto__":true}}',
    '{"$ref":"#/$defs/__proto__","$defs":{"__proto__":{"type":"integer"}}}',
    '{"type":"integer","__proto__":{"minimum":5}}',
  ]) {
    test(`is refused where it is __proto__: ${text}`, () => {
      assert.match(refusal(proto(text)).message, /^The schema holds a member named "__proto__", which is not supported\.$/);
    });
  }

  test('is refused where it is required', () => {
    assert.match(refusal(schema({ required: ['__proto__'] })).message, /"required" at # names the property "__proto__"/);
  });

  test('stays a text where it is one', () => {
    assert.ok(fits(schema({ const: '__proto__' }), '"__proto__"'));
  });

  for (const key of ['constructor', 'toString', 'hasOwnProperty']) {
    test(`is enforced where it is ${key}`, () => {
      const integer = { type: 'integer' };
      const closed = { type: 'object', additionalProperties: false };
      const good = `{"${key}":1}`;
      for (const one of [
        { ...closed, properties: { [key]: integer }, required: [key] },
        { ...closed, patternProperties: { [`^${key}$`]: integer }, minProperties: 1 },
        { $ref: `#/$defs/${key}`, $defs: { [key]: { ...closed, properties: { [key]: integer } } } },
        { const: { [key]: 1 } },
      ]) {
        assert.ok(fits(schema(one), good), JSON.stringify(one));
        for (const wrong of ['{}', `{"${key}":"1"}`, '{"a":1}']) assert.ok(!fits(schema(one), wrong), `${JSON.stringify(one)}: ${wrong}`);
      }
      assert.match(refusal(schema({ [key]: 1 })).message, /is not supported/);
      assert.match(refusal(schema({ $ref: `#/$defs/${key}`, $defs: {} })).message, /which the schema does not have/);
    });
  }
});

test('a constant without a member that JavaScript finds in every object is left out where the member is asked about', () => {
  for (const beside of [
    { properties: { constructor: { type: 'integer' } } },
    { required: ['toString'] },
    { not: { type: 'object', required: ['hasOwnProperty'] } },
  ]) {
    const of = schema({ anyOf: [{ const: { a: 1 }, ...beside }, { const: 2 }] });
    assert.ok(fits(of, '2'));
    assert.ok(!fits(of, '{"a":1}'), JSON.stringify(beside));
  }
});

describe('half of a surrogate pair', () => {
  test('in a constant is written as its escape, whatever stands beside the constant', () => {
    for (const one of [
      { const: 'a\ud800' },
      { enum: ['a\ud800'] },
      { type: 'string', const: 'a\ud800' },
      { type: ['string', 'null'], maxLength: 2, enum: ['a\ud800', 'much too long'] },
      { not: { const: 'a\udc00' }, const: 'a\ud800' },
    ]) {
      assert.ok(fits(schema(one), '"a\\ud800"'), JSON.stringify(one));
      assert.ok(!fits(schema(one), '"a\ufffd"'), JSON.stringify(one));
    }
    assert.ok(fits(schema({ type: 'object', const: { '\udc00': ['\ud800'] } }), '{"\\udc00":["\\ud800"]}'));
  });

  test('makes a constant one of the strings that a schema beside it allows', () => {
    const of = schema({ oneOf: [{ const: '\ud800' }, { type: 'string' }] });
    assert.ok(fits(of, '"a"'));
    assert.ok(!fits(of, '"\\ud800"'));
  });

  test('is no reason to leave other texts out', () => {
    const of = schema({ type: 'string', not: { enum: ['\ud800', 'a'] } });
    for (const text of ['"b"', '"\ufffd"', '""', '"\ud7ff\ue000"']) assert.ok(fits(of, text), text);
    assert.ok(!fits(of, '"a"'));
  });

  test('is not judged by patterns: what is left out is not let in', () => {
    // A validator finds "." in it, our automata do not.
    assert.match(refusal(schema({ const: '\ud800', pattern: '.' })).message, /allows no value/);
    assert.match(refusal(schema({ const: '\ud800', not: { pattern: '.' } })).message, /allows no value/);
    assert.match(refusal(schema({ const: { '\ud800': 1 }, patternProperties: { '.': { type: 'string' } } })).message, /allows no value/);
  });

  test('is refused in patterns and in required names', () => {
    assert.match(refusal(schema({ type: 'string', pattern: '\ud800' })).message, /half of a surrogate pair/);
    const error = refusal(schema({ items: { required: ['\ud800'] } }));
    assert.match(error.message, /"required" at #\/items names a property with half of a surrogate pair/);
    assert.deepEqual(error.path, ['items', 'required']);
  });
});

describe('an object', () => {
  test('has its keys in the order of properties, required ones always, none twice', () => {
    const of = schema({ type: 'object', properties: { b: { type: 'integer' }, a: { type: 'integer' } }, required: ['a'] });
    assert.ok(fits(of, '{"b":1,"a":2}'));
    assert.ok(fits(of, '{"a":2}'));
    assert.ok(fits(of, '{"a":2,"c":3,"d":4}'));
    for (const text of ['{"a":2,"b":1}', '{"b":1}', '{"a":1,"a":2}', '{"a":1,"b":2}', '{"a":1,"c":2,"c":3}'])
      assert.ok(!fits(of, text), text);
  });

  test('keeps what annotations say out of it', () => {
    const of = schema({
      title: 't',
      description: 'd',
      $comment: 'c',
      examples: [1],
      default: 3,
      deprecated: true,
      readOnly: true,
      type: 'integer',
    });
    assert.ok(fits(of, '7'));
    assert.ok(!fits(of, '7.0'));
  });
});
