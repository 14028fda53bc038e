/**
 * The values of `format`, as expressions that match whole strings. Each matches a part of what the format allows, never more, so that any
 * validator agrees; a format that is not here is refused. Sources: RFC 3339 (date, time, duration), RFC 9562 (uuid), RFC 5322 (email),
 * RFC 1123 (hostname), RFC 4291 (ipv6), RFC 3986 (uri), RFC 6901 (json-pointer).
 *
 * They are written in the syntax of patterns and read once, at their first use.
 */
import type { Expr } from '../pattern/expr.js';
import { parsePattern } from '../pattern/parse.js';

const LEAP = '(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)';
const DATE =
  '(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))' +
  `|${LEAP}-02-29)`;
const TIME = '(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])';
const N = '[0-9]{1,9}';
const CLOCK = `T(?:${N}H(?:${N}M)?(?:${N}S)?|${N}M(?:${N}S)?|${N}S)`;
const OCTET = '(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
const IPV4 = `${OCTET}(?:\\.${OCTET}){3}`;
const H16 = '[0-9a-fA-F]{1,4}';
const IPV6 = [
  `(?:${H16}:){7}${H16}`,
  '::',
  // k groups before "::", up to 6 - k after it: "::" stands for two groups at least.
  ...[0, 1, 2, 3, 4, 5, 6].map((k) => {
    const before = k === 0 ? '' : `${H16}(?::${H16}){${k - 1}}`;
    return k === 6 ? `${before}::` : `${before}::(?:${H16}(?::${H16}){0,${5 - k}})${k === 0 ? '' : '?'}`;
  }),
].join('|');
const LABEL = '[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,29}[a-zA-Z0-9])?';
/** Seven labels of 31 characters stay below the 253 that a name may have. */
const HOST = `${LABEL}(?:\\.${LABEL}){0,6}`;
const ATEXT = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]";
const EMAIL = `${ATEXT}{1,64}(?:\\.${ATEXT}{1,64}){0,4}@${LABEL}(?:\\.${LABEL}){1,6}`;
const PCHAR = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
const TAIL = `(?:/${PCHAR}*)*(?:\\?(?:${PCHAR}|[/?])*)?(?:#(?:${PCHAR}|[/?])*)?`;
const URI = `[a-zA-Z][a-zA-Z0-9+.-]{0,19}://${HOST}(?::[0-9]{1,5})?${TAIL}`;
const POINTER = '(?:/(?:[^~/]|~[01])*)*';

/** null: every string (or number) has the format. */
const sources: Readonly<Record<string, string | null>> = {
  date: DATE,
  time: TIME,
  'date-time': `${DATE}T${TIME}`,
  'iso-time': TIME,
  'iso-date-time': `${DATE}T${TIME}`,
  duration: `P(?:${N}W|${N}Y(?:${N}M)?(?:${N}D)?(?:${CLOCK})?|${N}M(?:${N}D)?(?:${CLOCK})?|${N}D(?:${CLOCK})?|${CLOCK})`,
  uuid: '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',
  email: EMAIL,
  'idn-email': EMAIL,
  hostname: HOST,
  'idn-hostname': HOST,
  ipv4: IPV4,
  ipv6: IPV6,
  uri: URI,
  url: `https?://${LABEL}(?:\\.${LABEL}){0,5}\\.[a-zA-Z]{2,12}(?::[0-9]{2,5})?${TAIL}`,
  iri: URI,
  'uri-reference': `${URI}|/${PCHAR}*${TAIL}|[a-zA-Z0-9._~-]+${TAIL}`,
  'iri-reference': `${URI}|/${PCHAR}*${TAIL}|[a-zA-Z0-9._~-]+${TAIL}`,
  'uri-template': `${URI}`,
  'json-pointer': POINTER,
  'relative-json-pointer': `(?:0|[1-9][0-9]{0,8})(?:#|${POINTER})`,
  regex: '\\^?(?:(?:[A-Za-z0-9 _@:;,<>=!"\'%&~`#-]|\\.|\\\\[dDwWsS]|\\[(?:a-z|A-Z|0-9|a-zA-Z0-9_)\\]|\\\\[.+*?/|$])[*+?]?)*\\$?',
  byte: '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?',
  password: null,
  binary: null,
};

/** Formats of numbers: they say nothing of strings. */
export const numberFormats: Readonly<Record<string, { readonly integer: boolean; readonly min?: number; readonly max?: number }>> = {
  int32: { integer: true, min: -(2 ** 31), max: 2 ** 31 - 1 },
  int64: { integer: true },
  int8: { integer: true, min: -(2 ** 7), max: 2 ** 7 - 1 },
  int16: { integer: true, min: -(2 ** 15), max: 2 ** 15 - 1 },
  uint8: { integer: true, min: 0, max: 2 ** 8 - 1 },
  uint16: { integer: true, min: 0, max: 2 ** 16 - 1 },
  uint32: { integer: true, min: 0, max: 2 ** 32 - 1 },
  uint64: { integer: true, min: 0 },
  uint: { integer: true, min: 0 },
  float: { integer: false },
  double: { integer: false },
};

const OWN_LIMITS = { maxPatternLength: 100_000, maxDepth: 100, maxRepeat: 1000, maxStates: Infinity };
const read = new Map<string, Expr>();

export const isStringFormat = (name: string): boolean => Object.hasOwn(sources, name);

/** What strings of the format match from first to last character; null when all do. The format must be known. */
export function formatExpr(name: string): Expr | null {
  const source = sources[name];
  if (source === undefined || source === null) return null;
  const known = read.get(name);
  if (known !== undefined) return known;
  const expr = parsePattern(source, OWN_LIMITS, []);
  read.set(name, expr);
  return expr;
}
