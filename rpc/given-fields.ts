/**
 * Checks the fields that an object has against a schema of many more, most of which are left out: zod asks the schema of each of sixty fields
 * what it makes of nothing, 40 us of every first token. What comes out is the same. To be dropped when zod passes over optional fields that
 * are not there (measured with 4.6).
 */
import type { z } from 'zod';

/** The checked fields; `keys`: those of `given`, where they are known. Null where something is wrong: then the whole schema is to be asked, which says what. */
export type GivenFields<S extends z.ZodObject> = (given: Readonly<Record<string, unknown>>, keys?: readonly string[]) => z.output<S> | null;

/** Null for a schema that looks at more than its fields. */
export function givenFields<S extends z.ZodObject>(schema: S): GivenFields<S> | null {
  const { checks = [], catchall } = schema.def;
  if (checks.length > 0 || catchall !== undefined) return null;
  const fields = new Map(Object.entries(schema.shape as Record<string, z.ZodType>));
  /** Those that are not nothing when they are left out: wanted, or filled in. */
  const wanted = [...fields].filter(([, field]) => field.safeParse(undefined).data !== undefined || !field.safeParse(undefined).success);
  return (given, keys = Object.keys(given)) => {
    for (const [name] of wanted) if (given[name] === undefined) return null;
    const checked: Record<string, unknown> = {};
    for (const name of keys) {
      const field = fields.get(name);
      if (field === undefined) continue;
      const found = read(field, given[name]);
      if (!found?.success) return null;
      checked[name] = found.data;
    }
    return checked as z.output<S>; // proof: fields are checked each by its schema, and none that is wanted is missing
  };
}

/** Null where zod throws, which it does again when the whole schema is asked. */
function read(field: z.ZodType, value: unknown): z.ZodSafeParseResult<unknown> | null {
  try {
    return field.safeParse(value);
  } catch {
    return null;
  }
}
