/**
 * A schema as it came: measured before anything looks at it, its sub-schemas found by `$ref`. Never recursive over the client's nesting
 * before the depth has been checked.
 */
import { ConstraintError, type Path, quoted, refusal } from '../error.js';
import type { Meter } from '../limits.js';

export type SchemaObject = Readonly<Record<string, unknown>>;
export type Schema = boolean | SchemaObject;

export const isObject = (value: unknown): value is SchemaObject => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Throws unless the value is JSON within the limits of bytes and depth. */
export function measure(value: unknown, meter: Meter): void {
  const { maxBytes, maxDepth } = meter.limits;
  let bytes = 0;
  const rest: { readonly value: unknown; readonly depth: number }[] = [{ value, depth: 1 }];
  for (let at = rest.pop(); at !== undefined; at = rest.pop()) {
    meter.tick();
    bytes += typeof at.value === 'string' ? at.value.length + 3 : 6;
    if (at.depth > maxDepth) throw new ConstraintError(`The schema nests deeper than structured_output.max_depth = ${maxDepth}.`);
    if (typeof at.value === 'object' && at.value !== null) {
      for (const [key, item] of Object.entries(at.value)) {
        // Programs in JavaScript read it as something else than a key: none of them could tell whether an answer fits.
        if (key === '__proto__') throw new ConstraintError('The schema holds a member named "__proto__", which is not supported.');
        bytes += Array.isArray(at.value) ? 1 : key.length + 4;
        rest.push({ value: item, depth: at.depth + 1 });
        if (bytes > maxBytes) break;
      }
    } else if (typeof at.value === 'number' ? !Number.isFinite(at.value) : !['string', 'boolean', 'object'].includes(typeof at.value)) {
      throw new ConstraintError('The schema holds something that JSON cannot.');
    }
    if (bytes > maxBytes) throw new ConstraintError(`The schema is larger than structured_output.max_schema_bytes = ${maxBytes}.`);
  }
}

/** Keywords that hold a schema, a list of schemas, or schemas by name. */
const holders = {
  one: [
    'additionalItems',
    'additionalProperties',
    'contains',
    'else',
    'if',
    'items',
    'not',
    'propertyNames',
    'then',
    'unevaluatedItems',
    'unevaluatedProperties',
  ],
  list: ['allOf', 'anyOf', 'items', 'oneOf', 'prefixItems'],
  named: ['$defs', 'definitions', 'dependencies', 'dependentSchemas', 'patternProperties', 'properties'],
};

/** One schema document: the targets of `$ref`, and where each of its schemas stands. */
export class SchemaDocument {
  readonly root: Schema;
  readonly #paths = new Map<SchemaObject, Path>();
  readonly #anchors = new Map<string, Schema>();
  readonly #meter: Meter;
  #inner: Path | null = null;

  constructor(root: unknown, meter: Meter) {
    measure(root, meter);
    if (!isObject(root) && typeof root !== 'boolean') throw new ConstraintError('A schema must be an object, true or false.');
    this.root = root;
    this.#meter = meter;
    this.#visit(root, []);
  }

  pathOf(schema: SchemaObject): Path {
    return this.#paths.get(schema) ?? [];
  }

  /** The schema that a reference in `from` names; remote, dangling and malformed ones are refused. */
  resolve(ref: unknown, from: SchemaObject): Schema {
    const path = this.pathOf(from);
    if (typeof ref !== 'string') throw refusal('$ref', path, 'must be a string');
    if (this.#inner !== null) throw refusal('$id', this.#inner, 'changes the base of references, which is not supported');
    const id = isObject(this.root) ? this.root['$id'] : undefined;
    const local = typeof id === 'string' && id !== '' && ref.startsWith(`${id.replace(/#$/, '')}#`) ? ref.slice(ref.indexOf('#')) : ref;
    if (!local.startsWith('#')) throw refusal('$ref', path, `names ${quoted(ref)} outside of the schema, which is not fetched`);
    const target = local === '#' ? this.root : local.startsWith('#/') ? this.#point(local.slice(2)) : this.#anchors.get(local.slice(1));
    if (!isObject(target) && typeof target !== 'boolean')
      throw refusal('$ref', path, `names ${quoted(ref)}, which the schema does not have`);
    return target;
  }

  #point(pointer: string): unknown {
    let at: unknown = this.root;
    for (const part of pointer.split('/')) {
      let key = part;
      try {
        key = decodeURIComponent(part);
      } catch {
        // Not percent-encoded: taken as it is.
      }
      key = key.replaceAll('~1', '/').replaceAll('~0', '~');
      if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key)) return undefined;
      at = (at as Record<string, unknown>)[key];
    }
    // A target outside of the places where schemas stand is met here for the first time.
    if (isObject(at) && !this.#paths.has(at)) this.#visit(at, pointer.split('/'));
    return at;
  }

  #visit(root: Schema, at: Path): void {
    const rest: { readonly schema: unknown; readonly path: Path }[] = [{ schema: root, path: at }];
    for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
      const { schema, path } = next;
      this.#meter.tick();
      if (!isObject(schema)) continue;
      this.#paths.set(schema, path);
      for (const key of ['$anchor', '$dynamicAnchor']) if (typeof schema[key] === 'string') this.#anchors.set(schema[key], schema);
      const id = schema['$id'];
      if (typeof id === 'string' && id.startsWith('#')) this.#anchors.set(id.slice(1), schema);
      else if (id !== undefined && path.length > 0) this.#inner = path;
      for (const key of holders.one) if (isObject(schema[key])) rest.push({ schema: schema[key], path: [...path, key] });
      for (const key of holders.list) {
        const list = schema[key];
        if (Array.isArray(list)) for (const [i, item] of list.entries()) rest.push({ schema: item, path: [...path, key, i] });
      }
      for (const key of holders.named) {
        const map = schema[key];
        if (isObject(map)) for (const [name, item] of Object.entries(map)) rest.push({ schema: item, path: [...path, key, name] });
      }
    }
  }
}
