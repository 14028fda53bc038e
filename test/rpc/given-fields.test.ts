import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { givenFields } from '../../rpc/given-fields.js';

const schema = z.object({
  name: z.string(),
  count: z.int().min(0).max(9).nullish(),
  list: z.array(z.object({ id: z.number(), note: z.string().optional() })).optional(),
  either: z.union([z.string(), z.boolean()]).nullish(),
  filled: z.number().default(3),
});

const value = fc.oneof(
  fc.string({ maxLength: 3 }),
  fc.integer({ min: -2, max: 11 }),
  fc.boolean(),
  fc.constantFrom(null, undefined, [], {}),
  fc.array(fc.record({ id: fc.oneof(fc.integer(), fc.string()), note: fc.string(), more: fc.boolean() }, { requiredKeys: ['id'] })),
);
const key = fc.constantFrom('name', 'count', 'list', 'either', 'filled', 'unknown', 'toString');

test('what is checked by the fields that are given is what the whole schema makes of it, and nothing wrong passes', () => {
  const quick = givenFields(schema);
  assert.ok(quick !== null);
  let passed = 0;
  fc.assert(
    fc.property(fc.dictionary(key, value), (given) => {
      const whole = schema.safeParse(given);
      const checked = quick(given);
      if (checked === null) return;
      passed++;
      assert.deepEqual(checked, whole.data);
    }),
    { numRuns: 3000, examples: [[{ name: 'a', filled: 1, list: [{ id: 1, more: true }], unknown: 2 }], [{ name: 'a', filled: 1 }]] },
  );
  assert.ok(passed >= 2);
});

test('a field that is wanted or filled in is left to the whole schema when it is missing', () => {
  const quick = givenFields(schema);
  assert.equal(quick?.({ name: 'a' }), null);
  assert.equal(quick?.({ filled: 1 }), null);
  assert.deepEqual(quick?.({ name: 'a', filled: 1 }), { name: 'a', filled: 1 });
});

test('a schema that looks at more than its fields is always asked itself', () => {
  assert.equal(givenFields(schema.refine(({ count }) => count !== 1)), null);
  assert.equal(givenFields(z.strictObject({ name: z.string() })), null);
  assert.equal(givenFields(z.looseObject({ name: z.string() })), null);
});
