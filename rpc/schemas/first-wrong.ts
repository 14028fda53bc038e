/**
 * Lists and objects of many members that are checked up to the first wrong one. zod would check all and keep what is wrong with each: a
 * body of thousands of wrong ones held up everybody for a tenth of a second. What passes stays as it came: members must change nothing.
 */
import { z } from 'zod';
import { issueText } from '../issue-text.js';

/** So many are checked at a time: one by one takes five times as long where all are good. */
const AT_ONCE = 8;

type Tell = z.core.$RefinementCtx;

const must = (what: string) => ({
  error: ({ input }: { readonly input?: unknown }) => (input === undefined ? 'is required' : `must be ${what}`),
});

/** As clients are told of it. */
function shown(schema: z.ZodType): object {
  const { $schema: _draft, ...json } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' });
  return json;
}

/** Tells what is wrong with the first wrong one of `values`, whose names are `keys`, or whose places where there are none. */
function tellFirstWrong(schema: z.ZodArray, values: readonly unknown[], keys: readonly string[] | null, tell: Tell): void {
  for (let from = 0; from < values.length; from += AT_ONCE) {
    const { error } = schema.safeParse(values.slice(from, from + AT_ONCE), { error: issueText });
    if (error === undefined) continue;
    const first = Number(error.issues[0]?.path[0]);
    const key = keys?.[from + first] ?? from + first;
    for (const { path, message } of error.issues)
      if (path[0] === first) tell.addIssue({ code: 'custom', path: [key, ...path.slice(1)], message });
    return;
  }
}

/** From `least` to `most` elements, which are called `unit`. */
export function listOf<S extends z.ZodType>(element: S, { least, most, unit }: { least: number; most: number; unit: string }) {
  const some = z.array(element);
  return z
    .custom<readonly z.output<S>[]>(Array.isArray, must('a list'))
    .superRefine((list: readonly unknown[], tell) => {
      if (list.length < least) tell.addIssue(`must have at least ${least === 1 ? 'one' : least} ${unit}`);
      else if (list.length > most) tell.addIssue(`must have at most ${most} ${unit}s`);
      else tellFirstWrong(some, list, null, tell);
    })
    .meta({ type: 'array', items: shown(element), minItems: least, maxItems: most });
}

/** At most `most` members. `names`: what their names are, and what is said of others. */
export function recordOf<S extends z.ZodType>(value: S, { most, names }: { most: number; names?: { form: RegExp; else: string } }) {
  const some = z.array(value);
  const isRecord = (given: unknown): boolean => typeof given === 'object' && given !== null && !Array.isArray(given);
  return z
    .custom<Readonly<Record<string, z.output<S>>>>(isRecord, must('an object'))
    .superRefine((given, tell) => {
      const keys = Object.keys(given);
      const misnamed = keys.length > most ? undefined : keys.find((key) => names?.form.test(key) === false);
      if (keys.length > most) tell.addIssue(`must have at most ${most} members`);
      else if (misnamed !== undefined) tell.addIssue({ code: 'custom', path: [misnamed], message: names?.else });
      else tellFirstWrong(some, Object.values(given), keys, tell);
    })
    .meta({
      type: 'object',
      propertyNames: { type: 'string', ...(names === undefined ? {} : { pattern: names.form.source }) },
      additionalProperties: shown(value),
      maxProperties: most,
    });
}
