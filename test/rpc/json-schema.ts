/**
 * Checks a value against a JSON Schema of draft 7, as far as the OpenRPC meta-schema and our own documents use it. References go within
 * the document; a reference elsewhere must be named in `remote`. An unknown keyword is an error, so that nothing passes unchecked.
 */
type Schema = boolean | { readonly [keyword: string]: unknown };

const annotations = new Set(['$schema', '$id', 'title', 'description', 'default', 'examples', 'definitions', '$comment', 'format']);

export interface SchemaSet {
  readonly root: Schema;
  /** Schemas of other documents, by the whole reference. */
  readonly remote: Readonly<Record<string, Schema>>;
}

/** Every fault found, as "path: what". Empty when the value is valid. */
export function schemaFaults(value: unknown, schema: Schema, set: SchemaSet, path = '$'): string[] {
  if (schema === true) return [];
  if (schema === false) return [`${path}: nothing is allowed here`];
  const ref = schema['$ref'];
  if (typeof ref === 'string') return schemaFaults(value, resolve(ref, set), set, path);
  return Object.entries(schema).flatMap(([keyword, rule]) => check(keyword, rule, value, schema, set, path));
}

function resolve(ref: string, set: SchemaSet): Schema {
  const remote = set.remote[ref];
  if (remote !== undefined) return remote;
  if (!ref.startsWith('#/')) throw new Error(`unknown reference ${ref}`);
  let at: unknown = set.root;
  for (const part of ref.slice(2).split('/')) at = (at as Record<string, unknown>)[part];
  if (at === undefined) throw new Error(`dangling reference ${ref}`);
  return at as Schema;
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

function hasType(value: unknown, type: string): boolean {
  const have = typeOf(value);
  return have === type || (type === 'number' && have === 'integer');
}

function check(keyword: string, rule: unknown, value: unknown, schema: Exclude<Schema, boolean>, set: SchemaSet, path: string): string[] {
  const fault = (ok: boolean, what: string): string[] => (ok ? [] : [`${path}: ${what}`]);
  const object = typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  const matching = (schemas: unknown): number => (schemas as Schema[]).filter((s) => schemaFaults(value, s, set, path).length === 0).length;
  if (annotations.has(keyword)) return [];
  switch (keyword) {
    case 'type':
      return fault(
        [rule].flat().some((t) => hasType(value, t as string)),
        `is ${typeOf(value)}, not ${String(rule)}`,
      );
    case 'enum':
      return fault(
        (rule as unknown[]).some((v) => JSON.stringify(v) === JSON.stringify(value)),
        'is not in the enum',
      );
    case 'const':
      return fault(JSON.stringify(rule) === JSON.stringify(value), 'is not the constant');
    case 'required':
      return object === null ? [] : (rule as string[]).flatMap((key) => fault(Object.hasOwn(object, key), `${key} is missing`));
    case 'properties':
      return object === null
        ? []
        : Object.entries(rule as Record<string, Schema>).flatMap(([key, s]) =>
            Object.hasOwn(object, key) ? schemaFaults(object[key], s, set, `${path}.${key}`) : [],
          );
    case 'patternProperties':
      return object === null
        ? []
        : Object.entries(rule as Record<string, Schema>).flatMap(([pattern, s]) =>
            Object.keys(object)
              .filter((key) => new RegExp(pattern).test(key))
              .flatMap((key) => schemaFaults(object[key], s, set, `${path}.${key}`)),
          );
    case 'additionalProperties': {
      const known = Object.keys((schema['properties'] ?? {}) as object);
      const patterns = Object.keys((schema['patternProperties'] ?? {}) as object);
      const others = Object.keys(object ?? {}).filter((key) => !known.includes(key) && !patterns.some((p) => new RegExp(p).test(key)));
      return others.flatMap((key) => schemaFaults(object?.[key], rule as Schema, set, `${path}.${key}`));
    }
    case 'propertyNames':
      return Object.keys(object ?? {}).flatMap((key) => schemaFaults(key, rule as Schema, set, `${path} name ${key}`));
    case 'items':
      return Array.isArray(value) ? value.flatMap((item: unknown, i) => schemaFaults(item, rule as Schema, set, `${path}[${i}]`)) : [];
    case 'additionalItems':
      return []; // means nothing beside an `items` that is one schema
    case 'oneOf':
      return fault(matching(rule) === 1, `matches ${matching(rule)} of oneOf`);
    case 'anyOf':
      return fault(matching(rule) > 0, 'matches none of anyOf');
    case 'allOf':
      return (rule as Schema[]).flatMap((s) => schemaFaults(value, s, set, path));
    case 'pattern':
      return fault(typeof value !== 'string' || new RegExp(rule as string).test(value), 'does not match the pattern');
    case 'minLength':
      return fault(typeof value !== 'string' || value.length >= (rule as number), 'is too short');
    case 'maxLength':
      return fault(typeof value !== 'string' || value.length <= (rule as number), 'is too long');
    case 'minItems':
      return fault(!Array.isArray(value) || value.length >= (rule as number), 'has too few elements');
    case 'maxItems':
      return fault(!Array.isArray(value) || value.length <= (rule as number), 'has too many elements');
    case 'minimum':
      return fault(typeof value !== 'number' || value >= (rule as number), 'is too small');
    case 'maximum':
      return fault(typeof value !== 'number' || value <= (rule as number), 'is too large');
    default:
      throw new Error(`${path}: keyword ${keyword} is not known`);
  }
}
