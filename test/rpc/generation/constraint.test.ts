/** What a body asks of the form of its answer, before a tokenizer hears of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { constraintOf } from '../../../rpc/generation/constraint.js';
import { constraintFields } from '../../../rpc/schemas/constraint.js';

const none = (path: string, message: string): never => assert.fail(`${path}: ${message}`);
const body = z.object(constraintFields({ maxConstraintBytes: 2 ** 24 }));

test('a long schema that comes as text is not read on the main thread, whatever it holds', () => {
  const texts = [
    `{"enum":[${'[],'.repeat(1_000_000)}1]}`,
    `{"const":${'['.repeat(100_000)}${']'.repeat(100_000)}}`,
    'no JSON'.repeat(10_000),
  ];
  for (const text of texts) {
    for (const asked of [{ guided_json: text }, { structured_outputs: { json: text } }]) {
      assert.deepEqual(constraintOf(body.parse(asked), none)?.constraint, { kind: 'json_text', text });
    }
  }
});

test('a schema keeps characters that UTF-8 cannot hold, so that it can be refused or left out', () => {
  const schema = { enum: ['\ud800', 'a'] };
  const asked = { response_format: { type: 'json_schema', json_schema: { schema } } };
  const made = constraintOf(body.parse(asked), none)?.constraint;
  assert.ok(made?.kind === 'json_text' && Buffer.from(made.text).toString() === made.text);
  assert.deepEqual(JSON.parse(made.text), schema);
});

test('half of a surrogate pair is refused in texts that are taken as they are', () => {
  for (const asked of [
    { guided_choice: ['a', '\udc00'] },
    { guided_regex: '\ud800' },
    { structured_outputs: { grammar: 'root ::= "\ud800"' } },
    { guided_json: '{"const":"\ud800"}' },
    { structured_outputs: { json: '{"const":"\ud800"}' } },
  ]) {
    assert.match(String(body.safeParse(asked).error), /half of a surrogate pair/);
  }
});

test('a schema that comes as text may escape half of a surrogate pair', () => {
  const made = constraintOf(body.parse({ guided_json: '{"const":"\\ud800"}' }), none)?.constraint;
  assert.ok(made?.kind === 'json_text' && made.text.isWellFormed());
});
