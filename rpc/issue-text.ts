/**
 * What a schema has to say against a value, in the words of our own messages ("must be ..."), for issues whose schema brings no text of
 * its own. Pure; called by params.ts while the issues of a failed check are read.
 */
import type { z } from 'zod';

const kinds: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'an integer',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};
const units: Readonly<Record<string, string>> = { string: ' characters', array: ' elements', set: ' elements' };

/** The sentence, or undefined to leave it to the schema library. */
export function issueText(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined) return 'is required';
      return `must be ${kinds[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      if (issue.input === undefined) return 'is required';
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(' or ')}`;
    case 'too_small':
      return bound(issue.origin, 'at least', issue.minimum);
    case 'too_big':
      return bound(issue.origin, 'at most', issue.maximum);
    default:
      return undefined;
  }
}

function bound(origin: string, word: string, limit: number | bigint): string {
  const unit = units[origin];
  return unit === undefined ? `must be ${word} ${limit}` : `must have ${word} ${limit}${unit}`;
}
