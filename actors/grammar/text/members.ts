/**
 * What stands between the brackets of an object or an array: named members in their order, each required or not, then free ones, with
 * commas between and counts of all. Linear in the members where counts do not matter, else members times the largest count that does.
 */
import { type GrammarWriter, sequence, times } from './writer.js';

export interface Members {
  readonly named: readonly { readonly text: string; readonly required: boolean }[];
  /** A member that may stand any number of times behind the named ones. */
  readonly free: string | null;
  readonly min: number;
  readonly max: number;
  readonly comma: string;
}

/** A fragment that also matches the empty text when no member is needed; null when the counts cannot be met. */
export function membersText(m: Members, w: GrammarWriter): string | null {
  const numRequired = m.named.filter((n) => n.required).length;
  const most = m.free === null ? m.named.length : Infinity;
  if (numRequired > m.max || most < m.min || m.min > m.max) return null;
  if (m.min > numRequired || m.max < most) return counted(m, w);
  return numRequired > 0 ? aroundRequired(m) : allOptional(m, w);
}

/** Members before the first required one bring their comma behind them, all others before them. */
function aroundRequired(m: Members): string {
  const first = m.named.findIndex((n) => n.required);
  const parts = m.named.map(({ text, required }, i) => {
    if (i === first) return text;
    if (i < first) return `( ${text} ${m.comma} )?`;
    return required ? `${m.comma} ${text}` : `( ${m.comma} ${text} )?`;
  });
  return sequence(...parts, freeTail(m, 0, Infinity));
}

function freeTail(m: Members, min: number, max: number): string {
  return m.free === null || max === 0 ? '' : times(`( ${m.comma} ${m.free} )`, min, max);
}

function allOptional(m: Members, w: GrammarWriter): string {
  let tail = freeTail(m, 0, Infinity);
  const starts = m.free === null ? [] : [sequence(m.free, tail)];
  for (const { text } of [...m.named].reverse()) {
    starts.unshift(sequence(text, tail));
    tail = w.define(w.newName('m'), sequence(`( ${m.comma} ${text} )?`, tail));
  }
  return starts.length === 0 ? '' : `( ${starts.join(' | ')} )?`;
}

function counted(m: Members, w: GrammarWriter): string | null {
  const { named, min, max } = m;
  // Counts above this one all mean the same.
  const cap = max === Infinity ? Math.max(min, 1) : max;
  const known = new Map<number, string | null>();
  const requiredFrom = named.map((_, i) => named.slice(i).filter((n) => n.required).length);
  const from = (at: number, count: number): string | null => {
    const key = at * (cap + 1) + Math.min(count, cap);
    const have = known.get(key);
    if (have !== undefined) return have;
    w.meter.tick();
    const made = at === named.length ? end(count) : step(at, count);
    const stored = made === null || made.length < 24 ? made : w.define(w.newName('m'), made);
    known.set(key, stored);
    return stored;
  };
  const end = (count: number): string | null => {
    const [lo, hi] = [Math.max(0, min - count), max - count];
    if (lo > hi || (m.free === null && lo > 0)) return null;
    if (m.free === null) return '';
    if (count > 0) return freeTail(m, lo, hi);
    const more = sequence(m.free, freeTail(m, Math.max(0, lo - 1), hi - 1));
    return hi === 0 ? '' : lo === 0 ? `( ${more} )?` : more;
  };
  const step = (at: number, count: number): string | null => {
    const { text, required } = named[at]!;
    if ((requiredFrom[at] ?? 0) + count > max) return null;
    const taken = count < max ? from(at + 1, count + 1) : null;
    const left = required ? null : from(at + 1, count);
    const first = taken === null ? null : sequence(count > 0 ? m.comma : '', text, taken);
    if (first === null || left === null) return first ?? left;
    return `( ${first} | ${left === '' ? '""' : left} )`;
  };
  return from(0, 0);
}
