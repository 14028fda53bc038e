import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { listOf, recordOf } from '../../../rpc/schemas/first-wrong.js';

const issuesOf = (schema: z.ZodType, value: unknown): [string, string][] =>
  (schema.safeParse(value).error?.issues ?? []).map(({ path, message }) => [path.join('.'), message]);

test('of a list the first wrong element is told, with its place and all that is wrong with it', () => {
  const list = listOf(z.looseObject({ id: z.int(), tags: z.array(z.string()).optional() }), { least: 1, most: 5000, unit: 'thing' });
  const good = [
    { id: 1, more: { a: 1 } },
    { id: 2, tags: ['x'] },
  ];
  assert.equal(list.parse(good), good);
  assert.deepEqual(issuesOf(list, [...Array(10).fill(good[0]), { id: 'x', tags: [5] }, ...Array(4000).fill(null)]), [
    ['10.id', 'must be a number'],
    ['10.tags.0', 'must be a string'],
  ]);
  assert.deepEqual(issuesOf(list, []), [['', 'must have at least one thing']]);
  assert.deepEqual(issuesOf(list, Array(5001).fill(null)), [['', 'must have at most 5000 things']]);
  assert.deepEqual(issuesOf(list, {}), [['', 'must be a list']]);
  assert.deepEqual(issuesOf(list, undefined), [['', 'is required']]);
});

test('of an object the first wrong member is told, its name before its value', () => {
  const names = { form: /^\d+$/, else: 'must be a number' };
  const record = recordOf(z.number().max(9, 'must be at most 9'), { most: 12, names });
  const good = { 1: 2, 3: 9 };
  assert.equal(record.parse(good), good);
  const many = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, i) => [i, i]));
  assert.deepEqual(issuesOf(record, many(12)), [['10', 'must be at most 9']]);
  assert.deepEqual(issuesOf(record, { 3: 10, a: 11 }), [['a', 'must be a number']]);
  assert.deepEqual(issuesOf(record, many(13)), [['', 'must have at most 12 members']]);
  for (const wrong of [null, [], 'x']) assert.deepEqual(issuesOf(record, wrong), [['', 'must be an object']]);
});
