/**
 * Characters as they stand in a JSON string. Only the escapes that JSON needs are written, and each in its short form where it has one:
 * equal texts are then equal bytes, which `%distinct` relies on for keys.
 */

import { hasPoint, intersectRanges, type Ranges, rangesOf, subtractRanges } from '../pattern/ranges.js';
import type { Alphabet } from '../pattern/write.js';
import { anyOf, charClass, literal } from './writer.js';

const CONTROLS: Ranges = [[0, 0x1f]];
const NEEDS_ESCAPE = rangesOf([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);
const SHORT: readonly (readonly [number, string])[] = [
  [0x22, '"'],
  [0x5c, '\\'],
  [8, 'b'],
  [12, 'f'],
  [10, 'n'],
  [13, 'r'],
  [9, 't'],
];

/** A text between the quotes of a JSON string. */
export const inString = (text: string): string => JSON.stringify(text).slice(1, -1);

function stringClass(ranges: Ranges): string {
  const plain = subtractRanges(ranges, NEEDS_ESCAPE);
  const short = SHORT.filter(([point]) => hasPoint(ranges, point)).map(([, letter]) => letter);
  const fragments: string[] = [];
  if (plain.length > 0) fragments.push(charClass(plain));
  if (short.length > 0) fragments.push(`"\\\\" ${charClass(rangesOf(short.map((c) => [c.charCodeAt(0), c.charCodeAt(0)] as const)))}`);
  // Other control characters have the long form only. Nobody asks for them but by name: a class that has others leaves them out.
  const long = subtractRanges(intersectRanges(ranges, CONTROLS), rangesOf(SHORT.map(([point]) => [point, point] as const)));
  if (plain.length === 0 && long.length > 0) {
    for (const [lo, hi] of long) for (let c = lo; c <= hi; c++) fragments.push(literal(inString(String.fromCharCode(c))));
  }
  return fragments.length === 1 && plain.length > 0 ? fragments[0]! : `(${fragments.join(' | ')})`;
}

/** Characters in a JSON string, canonical. */
export const STRING_ALPHABET: Alphabet = { hint: 's', charClass: stringClass, literal: (text) => literal(inString(text)) };
/** Characters as they are. */
export const PLAIN_ALPHABET: Alphabet = { hint: 'r', charClass, literal };

/** One character of a string with every escape that JSON knows, surrogate pairs whole. */
export const FREE_CHAR = anyOf([
  '[^"\\\\\\x00-\\x1f]',
  `"\\\\" ${anyOf([
    '["\\\\/bfnrt]',
    `"u" ${anyOf(['[0-9a-ce-fA-CE-F] [0-9a-fA-F]{3}', '[dD] [0-7] [0-9a-fA-F]{2}', '[dD] [89abAB] [0-9a-fA-F]{2} "\\\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}'])}`,
  ])}`,
]);
/** One character of a string in the only way that keys are written. */
export const CANONICAL_CHAR = anyOf(['[^"\\\\\\x00-\\x1f]', `"\\\\" ["\\\\bfnrt]`]);
