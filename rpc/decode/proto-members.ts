/**
 * Members named `__proto__`, which programs in JavaScript lose or take for something else on the way. They mean nothing to any method, so
 * they are dropped, but for a schema: there they ask something of the answer, and a schema without them would allow what was forbidden.
 */

/** Members of params and bodies that hold schemas, by their names in all dialects. */
const schemaHolders = new Set(['response_format', 'guided_json', 'structured_outputs', 'tools', 'format', 'text', 'output_config']);

/**
 * In place, from the params of a call or the body of a face. A reviver of JSON.parse does the same at ten times the cost. Depth is bounded
 * by the scan before.
 * @returns why the call cannot be taken, in one sentence, or null.
 */
export function dropProto(params: unknown): string | null {
  if (!isHolder(params)) return null;
  Reflect.deleteProperty(params, '__proto__');
  // Positional params have no names here: each of them may be a schema.
  const mayBeSchema = (name: string): boolean => Array.isArray(params) || schemaHolders.has(name);
  let refused: string | null = null;
  for (const [name, member] of Object.entries(params)) {
    if (isHolder(member) && dropBelow(member) && mayBeSchema(name)) refused ??= name;
  }
  if (refused === null) return null;
  return `${Array.isArray(params) ? `params[${refused}]` : refused} holds a member named "__proto__", which is not supported`;
}

/** Whether there was one. */
function dropBelow(value: object): boolean {
  let found = Object.hasOwn(value, '__proto__');
  if (found) Reflect.deleteProperty(value, '__proto__');
  for (const member of Object.values(value)) if (isHolder(member) && dropBelow(member)) found = true;
  return found;
}

const isHolder = (value: unknown): value is object => typeof value === 'object' && value !== null;
