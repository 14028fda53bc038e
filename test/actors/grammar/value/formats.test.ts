import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { constraintGrammar } from '../../../../actors/grammar/index.js';
import { parseGrammar } from '../../../helpers/grammar/gbnf.js';
import { randomOf, TextGenerator } from '../../../helpers/grammar/generate.js';
import { recognises } from '../../../helpers/grammar/recognise.js';
import { defaultLimits, validatorOf } from '../../../helpers/grammar/validator.js';

const good: Readonly<Record<string, readonly string[]>> = {
  date: ['2024-02-29', '1999-12-31'],
  time: ['00:00:00Z', '23:59:59.123+02:00'],
  'date-time': ['2024-01-01T12:00:00Z', '2024-01-01T12:00:00.5-08:00'],
  duration: ['P1D', 'PT5M', 'P1Y2M3DT4H5M6S', 'P4W'],
  uuid: ['123e4567-e89b-12d3-a456-426614174000'],
  email: ['a@example.com', 'first.last+tag@mail.example.org'],
  hostname: ['localhost', 'a-b.example.com'],
  ipv4: ['0.0.0.0', '255.249.199.9'],
  ipv6: ['::', '::1', '1::', '2001:db8::ff00:42:8329', '1:2:3:4:5:6:7:8', 'fe80::1:2:3:4'],
  uri: ['https://example.com', 'ftp://a.b/c?d=e#f'],
  'uri-reference': ['/a/b', 'a.html?x=1'],
  'json-pointer': ['', '/a~1b/0'],
  'relative-json-pointer': ['0#', '1/a'],
  regex: ['^a+[0-9]*$'],
  byte: ['', 'aGk='],
};

describe('strings of a format', () => {
  for (const [format, texts] of Object.entries(good)) {
    test(`${format}: those made are valid, and known good ones can be made`, () => {
      const schema = { type: 'string', format };
      const validate = validatorOf(schema);
      const grammar = parseGrammar(constraintGrammar({ kind: 'json_schema', schema }, defaultLimits).text);
      const generator = new TextGenerator(grammar);
      const random = randomOf(3);
      for (let i = 0; i < 400; i++) {
        const text = generator.text(random);
        if (text !== null) assert.ok(validate(JSON.parse(text)), text);
      }
      for (const text of texts) assert.ok(recognises(grammar, JSON.stringify(text)), text);
    });
  }
});
