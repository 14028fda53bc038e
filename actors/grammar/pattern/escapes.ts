/** What `\` means in a pattern, inside and outside of classes. */
import { type Expr, text } from './expr.js';
import { invertRanges, type Ranges, rangesOf } from './ranges.js';
import type { PatternReader } from './reader.js';

const DIGITS: Ranges = [[0x30, 0x39]];
const WORD = rangesOf([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]);
/** ECMAScript's white space and line ends. */
const SPACE = rangesOf([
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);
const LINE_ENDS = rangesOf([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]);

/** What `.` matches. */
export const DOT = invertRanges(LINE_ENDS);

const sets: Readonly<Record<string, Ranges>> = {
  d: DIGITS,
  D: invertRanges(DIGITS),
  w: WORD,
  W: invertRanges(WORD),
  s: SPACE,
  S: invertRanges(SPACE),
};
const controls: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, v: 11, f: 12 };

/** An escape outside of a class; its `\` has been read. */
export function takeEscape(r: PatternReader): Expr {
  const c = r.peek();
  if (c === 'b' || c === 'B') r.fail('has a word boundary, which is not supported');
  if (c >= '1' && c <= '9') r.fail('has a backreference, which is not supported');
  if (c === 'k') r.fail('has a backreference, which is not supported');
  if (c === 'A') {
    r.next();
    return { op: 'start' };
  }
  if (c === 'Z' || c === 'z') {
    r.next();
    return { op: 'end' };
  }
  const found = classEscape(r);
  return typeof found === 'number' ? text(String.fromCodePoint(found)) : { op: 'class', ranges: found };
}

/** An escape as it can stand in a class: one code point, or a set. */
export function classEscape(r: PatternReader): number | Ranges {
  if (r.done) r.fail('ends in a backslash');
  const c = r.next();
  const set = sets[c];
  if (set !== undefined) return set;
  const control = controls[c];
  if (control !== undefined) return control;
  switch (c) {
    case 'b':
      return 8;
    case '0':
      return r.peek() >= '0' && r.peek() <= '9' ? r.fail('has an octal escape, which is not supported') : 0;
    case 'c': {
      const letter = r.takeMatch(/^[A-Za-z]/) ?? r.fail('has an escape "\\c" without a letter');
      return (letter.codePointAt(0) ?? 0) % 32;
    }
    case 'x':
      return hex(r, r.takeMatch(/^[0-9a-fA-F]{2}/));
    case 'u':
      return unicode(r);
    case 'p':
    case 'P':
      return r.fail(`has a property of characters, "\\${c}", which is not supported`);
    default:
      if (/^[A-Za-z0-9]$/.test(c)) r.fail(`has an unknown escape "\\${c}"`);
      return c.codePointAt(0) ?? 0;
  }
}

const hex = (r: PatternReader, digits: string | null): number =>
  digits === null ? r.fail('has an escape without its hexadecimal digits') : Number.parseInt(digits, 16);

function unicode(r: PatternReader): number {
  const braced = r.takeMatch(/^\{[0-9a-fA-F]{1,6}\}/);
  if (braced !== null) return whole(r, Number.parseInt(braced.slice(1, -1), 16));
  const first = hex(r, r.takeMatch(/^[0-9a-fA-F]{4}/));
  if (first < 0xd800 || first > 0xdbff) return whole(r, first);
  const second = r.takeMatch(/^\\u[dD][c-fC-F][0-9a-fA-F]{2}/);
  if (second === null) r.fail('has half of a surrogate pair');
  return 0x10000 + (first - 0xd800) * 0x400 + (Number.parseInt(second.slice(2), 16) - 0xdc00);
}

function whole(r: PatternReader, point: number): number {
  if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) r.fail('has an escape that names no character');
  return point;
}
