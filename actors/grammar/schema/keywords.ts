/** The keywords of JSON Schema that are known here, and the shapes that their values must have: what is not in the table is refused. */
import { type Path, quoted, refusal } from '../error.js';
import { isObject, type SchemaObject } from './document.js';

const isCount = (v: unknown): boolean => typeof v === 'number' && Number.isInteger(v) && v >= 0;
const isNumber = (v: unknown): boolean => typeof v === 'number';
const isSchema = (v: unknown): boolean => isObject(v) || typeof v === 'boolean';
const isStrings = (v: unknown): boolean => Array.isArray(v) && v.every((x) => typeof x === 'string');
const isSchemas = (v: unknown): boolean => Array.isArray(v) && v.length > 0 && v.every(isSchema);
const isSchemaMap = (v: unknown): boolean => isObject(v) && Object.values(v).every(isSchema);
const anything = (): boolean => true;

type Shape = readonly [(value: unknown) => boolean, string];
const count: Shape = [isCount, 'must be a whole number, zero or more'];
const number: Shape = [isNumber, 'must be a number'];
const text: Shape = [(v) => typeof v === 'string', 'must be a string'];
const schema: Shape = [isSchema, 'must be a schema'];
const schemas: Shape = [isSchemas, 'must be a list of schemas that is not empty'];
const schemaMap: Shape = [isSchemaMap, 'must be an object of schemas'];
const bool: Shape = [(v) => typeof v === 'boolean', 'must be true or false'];
const free: Shape = [anything, ''];

export const TYPES = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'] as const;
export type TypeName = (typeof TYPES)[number];
const isType = (v: unknown): boolean => (TYPES as readonly unknown[]).includes(v);

/** Those that say nothing of the value. */
const annotations = ['title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly', '$schema', '$id', '$comment'];

const shapes: Readonly<Record<string, Shape>> = {
  ...Object.fromEntries(annotations.map((key) => [key, free])),
  $anchor: text,
  $defs: free,
  $ref: text,
  additionalItems: schema,
  additionalProperties: schema,
  allOf: schemas,
  anyOf: schemas,
  const: free,
  contains: schema,
  definitions: free,
  dependencies: [
    (v) => isObject(v) && Object.values(v).every((x) => isSchema(x) || isStrings(x)),
    'must be an object of schemas or lists of names',
  ],
  dependentRequired: [(v) => isObject(v) && Object.values(v).every(isStrings), 'must be an object of lists of names'],
  dependentSchemas: schemaMap,
  else: schema,
  enum: [(v) => Array.isArray(v), 'must be a list'],
  exclusiveMaximum: number,
  exclusiveMinimum: number,
  format: text,
  if: schema,
  items: [(v) => isSchema(v) || (Array.isArray(v) && v.every(isSchema)), 'must be a schema or a list of schemas'],
  maxContains: count,
  maximum: number,
  maxItems: count,
  maxLength: count,
  maxProperties: count,
  minContains: count,
  minimum: number,
  minItems: count,
  minLength: count,
  minProperties: count,
  multipleOf: [(v) => typeof v === 'number' && v > 0, 'must be a number over zero'],
  not: schema,
  nullable: bool,
  oneOf: schemas,
  pattern: text,
  patternProperties: schemaMap,
  prefixItems: schemas,
  properties: schemaMap,
  propertyNames: schema,
  required: [isStrings, 'must be a list of strings'],
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: schema,
  type: [(v) => isType(v) || (Array.isArray(v) && v.length > 0 && v.every(isType)), `must be one or more of ${TYPES.join(', ')}`],
  unevaluatedProperties: schema,
  uniqueItems: bool,
};

/** Throws for a keyword that is not known here, or whose value is malformed. */
export function checkKeywords(of: SchemaObject, path: Path): void {
  for (const key of Object.keys(of)) {
    const shape = Object.hasOwn(shapes, key) ? shapes[key] : undefined;
    if (shape === undefined) throw refusal(key, path, 'is not supported');
    if (!shape[0](of[key])) throw refusal(key, path, `is ${quoted(of[key])}; it ${shape[1]}`);
  }
  // No object can be asked for a key that programs in JavaScript cannot see, nor for one that patterns cannot judge.
  const required = Array.isArray(of['required']) ? (of['required'] as readonly string[]) : [];
  if (required.includes('__proto__')) throw refusal('required', path, 'names the property "__proto__", which is not supported');
  if (!required.every((key) => key.isWellFormed()))
    throw refusal('required', path, 'names a property with half of a surrogate pair, which is not supported');
}
