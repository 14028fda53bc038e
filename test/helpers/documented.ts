/** Compares an answer that a document shows with a real one. */

/** Texts that no two answers have in common. */
const ownTexts = new Set([
  'version',
  'node',
  'platform',
  'started_at',
  'source',
  'note',
  'backend',
  'kv_dtype',
  'created_at',
  'modified_at',
  'path',
]);
/** Numbers that do not depend on when and where it was asked. */
const fixedNumbers = new Set(['index', 'ids', 'tokens', 'prompt_tokens', 'completion_tokens', 'total_tokens', 'protocol']);

export interface CompareOptions {
  /** False: the pieces of a stream, which may be cut elsewhere. */
  readonly texts?: boolean;
}

/**
 * Where the documented answer is not what was answered. It may leave members out; lists of objects are compared as far as they go; ids have
 * the same beginning; counts and times only have to be numbers.
 */
export function differences(documented: unknown, real: unknown, options: CompareOptions = {}, path = '$'): string[] {
  const name = /([a-z_]+)(?:\[\d+\])*$/.exec(path)?.[1] ?? '';
  const differ = (ok: boolean): string[] =>
    ok ? [] : [`${path}: documented ${JSON.stringify(documented)}, answered ${JSON.stringify(real)}`];
  if (documented === null || typeof documented === 'boolean') return differ(documented === real);
  if (typeof documented === 'number')
    return differ(typeof real === 'number' && (!(fixedNumbers.has(name) || path === '$.count') || documented === real));
  if (typeof documented === 'string') {
    if (typeof real !== 'string') return differ(false);
    if (path === '$' || ownTexts.has(name) || name === 'files' || options.texts === false) return [];
    if (/^(id|\w+_id)$/.test(name)) return differ(documented.split(/[-_]/)[0] === real.split(/[-_]/)[0]);
    return differ(documented === real);
  }
  if (typeof real !== 'object' || real === null || Array.isArray(documented) !== Array.isArray(real)) return differ(false);
  if (Array.isArray(documented)) {
    const given = real as readonly unknown[];
    if (documented.length > given.length || (fixedNumbers.has(name) && documented.length !== given.length)) return differ(false);
    return documented.flatMap((one, i) => differences(one, given[i], options, `${path}[${i}]`));
  }
  return Object.entries(documented as object).flatMap(([key, value]) =>
    key in real
      ? differences(value, (real as Record<string, unknown>)[key], options, `${path}.${key}`)
      : [`${path}.${key} is not answered`],
  );
}
