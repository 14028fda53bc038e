/** Random JSON schemas of the kinds that people write, for fast-check: small, nested a few levels, sometimes without a value. */
import fc from 'fast-check';

type Schema = Readonly<Record<string, unknown>>;

const words = ['id', 'name', 'kind', 'a', 'b', 'tags', 'x-note'];
const patterns = ['^[a-z]+$', '^[A-Z]{2,4}-[0-9]+$', 'foo', '^\\d{3}$', '^(on|off)$', '[^a-f]$', '^a|b$', '^[\\w .-]*$', '^"?é\\\\?$'];
const formats = ['date', 'time', 'date-time', 'duration', 'uuid', 'email', 'hostname', 'ipv4', 'ipv6', 'uri'];

const small = fc.integer({ min: 0, max: 6 });
const decimal = fc.integer({ min: -2000, max: 2000 }).map((n) => n / 100);
const constant = fc.constantFrom<unknown>('foo', 'on', 'x"y', 1, -2, 2.5, true, null, 'ab');
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined, freq: 2 });

/** Without the keywords that were not chosen. */
const record = (keywords: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Schema> =>
  fc.record(keywords).map((schema) => Object.fromEntries(Object.entries(schema).filter(([, value]) => value !== undefined)));

const strings = record({
  type: fc.constant('string'),
  minLength: maybe(small),
  maxLength: maybe(fc.integer({ min: 3, max: 20 })),
  pattern: maybe(fc.constantFrom(...patterns)),
});
const formatted = record({ type: fc.constant('string'), format: fc.constantFrom(...formats) });
const numbers = record({
  type: fc.constantFrom('number', 'integer'),
  minimum: maybe(decimal),
  exclusiveMaximum: maybe(decimal),
  maximum: maybe(fc.integer({ min: -100, max: 1000 })),
  multipleOf: maybe(fc.constantFrom(1, 2, 3, 5, 10, 0.5, 0.25, 0.1, 0.01)),
});
const scalars = fc.oneof(
  strings,
  formatted,
  numbers,
  record({ type: fc.constantFrom<unknown>('boolean', 'null', ['string', 'null'], ['integer', 'boolean']) }),
  record({ enum: fc.array(constant, { minLength: 1, maxLength: 5 }) }),
  record({ const: constant }),
);

function objects(inner: fc.Arbitrary<unknown>): fc.Arbitrary<Schema> {
  return record({
    type: fc.constant('object'),
    properties: maybe(fc.dictionary(fc.constantFrom(...words), inner, { maxKeys: 4 }).map((d) => ({ ...d }))),
    required: maybe(fc.uniqueArray(fc.constantFrom(...words), { maxLength: 2 })),
    additionalProperties: maybe(fc.oneof(fc.boolean(), inner)),
    patternProperties: maybe(fc.dictionary(fc.constantFrom('^x-', '^[a-c]$', 'e'), inner, { maxKeys: 2 }).map((d) => ({ ...d }))),
    propertyNames: fc.option(fc.constantFrom({ pattern: '^[a-z-]+$' }, { maxLength: 4 }, { enum: ['id', 'name', 'a'] }), {
      nil: undefined,
      freq: 1,
    }),
    minProperties: maybe(fc.integer({ min: 0, max: 2 })),
    maxProperties: maybe(fc.integer({ min: 2, max: 5 })),
  });
}

function arrays(inner: fc.Arbitrary<unknown>): fc.Arbitrary<Schema> {
  return record({
    type: fc.constant('array'),
    items: maybe(inner),
    prefixItems: maybe(fc.array(inner, { minLength: 1, maxLength: 3 })),
    minItems: maybe(fc.integer({ min: 0, max: 2 })),
    maxItems: maybe(fc.integer({ min: 2, max: 5 })),
    uniqueItems: fc.option(fc.constant(true), { nil: undefined }),
    contains: fc.option(scalars, { nil: undefined }),
    // Ajv 8.20 takes [] for valid where `contains` stands beside `prefixItems`.
  }).map(({ contains, ...rest }) => (contains === undefined || 'prefixItems' in rest ? rest : { ...rest, contains }));
}

const combined = (inner: fc.Arbitrary<unknown>): fc.Arbitrary<Schema> =>
  fc.oneof(
    record({ anyOf: fc.array(inner, { minLength: 1, maxLength: 3 }) }),
    record({ oneOf: fc.array(inner, { minLength: 1, maxLength: 3 }) }),
    record({ allOf: fc.array(inner, { minLength: 1, maxLength: 2 }) }),
    record({ type: fc.constantFrom<unknown>('string', 'number', 'object', undefined), not: inner }),
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    record({ if: inner, then: inner, else: maybe(inner) }),
    fc.constant({ $ref: '#' }).chain((ref) => record({ type: fc.constant('array'), items: fc.constant(ref), maxItems: fc.constant(2) })),
  );

export const randomSchema: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  schema: fc.oneof({ maxDepth: 3, depthSize: 'small' }, scalars, objects(tie('schema')), arrays(tie('schema')), combined(tie('schema'))),
})).schema;
