/**
 * Markers: what a model writes around its calls and its reasoning, such as `<tool_call>` or `</think>`. In some vocabularies a marker is
 * ordinary text, in others a control token, which clients do not see (skip_special_tokens).
 *
 * Readers of answers take both in one string. A hidden control token stands in it as one lone surrogate, the marker's `unit`: decoded
 * text is well-formed and has none, so a unit is never text of the answer, and is erased from whatever is given back as text.
 */

export interface Marker {
  readonly text: string;
  /** One lone low surrogate, the same for all markers of this text. */
  readonly unit: string;
}

const FIRST_UNIT = 0xdc00;
/** By text: a marker that two formats have is one. Filled while the formats are loaded, not after. */
const known = new Map<string, Marker>();

export function marker(text: string): Marker {
  const found = known.get(text) ?? { text, unit: String.fromCharCode(FIRST_UNIT + known.size) };
  known.set(text, found);
  return found;
}

/** `text` without hidden control tokens. */
export function visible(text: string): string {
  return text.replace(/[\udc00-\udfff]/gu, ''); // with the flag u a surrogate matches only where it stands alone
}

/** Where a marker was found: its first character and the one behind it. */
export interface Found {
  readonly marker: Marker;
  readonly at: number;
  readonly end: number;
}

/** The marker that begins first. */
export function findMarker(text: string, markers: readonly Marker[]): Found | null {
  let best: Found | null = null;
  for (const one of markers) {
    for (const [at, length] of [[text.indexOf(one.text), one.text.length] as const, [indexOfUnit(text, one.unit), 1] as const]) {
      if (at >= 0 && (best === null || at < best.at)) best = { marker: one, at, end: at + length };
    }
  }
  return best;
}

/** Where the unit stands alone: behind a high surrogate it is half a character. */
function indexOfUnit(text: string, unit: string): number {
  let at = text.indexOf(unit);
  while (at > 0 && (text.charCodeAt(at - 1) & 0xfc00) === 0xd800) at = text.indexOf(unit, at + 1);
  return at;
}

/** Characters at the end of `text` that may be the beginning of a marker, the most of all; 0 when there are none. */
export function partialMarker(text: string, markers: readonly Marker[]): number {
  let most = 0;
  for (const { text: whole } of markers) {
    for (let length = Math.min(whole.length - 1, text.length); length > most; length--) {
      if (text.endsWith(whole.slice(0, length))) most = length;
    }
  }
  return most;
}

/** True when `text` begins with the marker; null while it is the beginning of one and may become it. */
export function startsWithMarker(text: string, { text: whole, unit }: Marker): boolean | null {
  if (text.startsWith(whole) || text.startsWith(unit)) return true;
  return whole.startsWith(text) ? null : false;
}

/** Characters that `text` loses when it begins with the marker. */
export function markerLength(text: string, { text: whole, unit }: Marker): number {
  return text.startsWith(unit) ? unit.length : whole.length;
}

/** White space of JSON. */
export function isSpace(c: string | undefined): boolean {
  return c === ' ' || c === '\n' || c === '\r' || c === '\t';
}

/** Index of the first character at or behind `at` that is no white space. */
export function skipSpace(text: string, at = 0): number {
  let i = at;
  while (i < text.length && isSpace(text[i])) i++;
  return i;
}
