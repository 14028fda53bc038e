/** Sets of code points as sorted, disjoint, non-adjacent ranges `[first, last]`. Surrogates are never members: text has none. */

export type Range = readonly [number, number];
export type Ranges = readonly Range[];

/** Every code point that text can hold. */
export const ALL: Ranges = [
  [0, 0xd7ff],
  [0xe000, 0x10ffff],
];

/** Any ranges as a set. */
export function rangesOf(list: readonly Range[]): Ranges {
  const sorted = [...list].sort((a, b) => a[0] - b[0]);
  const out: [number, number][] = [];
  for (const [lo, hi] of sorted) {
    const last = out.at(-1);
    if (last !== undefined && lo <= last[1] + 1) last[1] = Math.max(last[1], hi);
    else out.push([lo, hi]);
  }
  return intersectRanges(out, ALL);
}

export function intersectRanges(a: Ranges, b: Ranges): Ranges {
  const out: Range[] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const [alo, ahi] = a[i]!; // i and j are within bounds
    const [blo, bhi] = b[j]!;
    if (Math.max(alo, blo) <= Math.min(ahi, bhi)) out.push([Math.max(alo, blo), Math.min(ahi, bhi)]);
    if (ahi < bhi) i++;
    else j++;
  }
  return out;
}

export function invertRanges(a: Ranges): Ranges {
  const out: Range[] = [];
  let next = 0;
  for (const [lo, hi] of a) {
    if (lo > next) out.push([next, lo - 1]);
    next = hi + 1;
  }
  if (next <= 0x10ffff) out.push([next, 0x10ffff]);
  return intersectRanges(out, ALL);
}

export const unionRanges = (a: Ranges, b: Ranges): Ranges => rangesOf([...a, ...b]);
export const subtractRanges = (a: Ranges, b: Ranges): Ranges => intersectRanges(a, invertRanges(b));
export const hasPoint = (a: Ranges, point: number): boolean => a.some(([lo, hi]) => lo <= point && point <= hi);
export const numPoints = (a: Ranges): number => a.reduce((sum, [lo, hi]) => sum + hi - lo + 1, 0);
