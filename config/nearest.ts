/**
 * Finds the known name closest to a mistyped one, for error sentences ("nearest known key: ...").
 *
 * Edit distance with transpositions (optimal string alignment: Damerau 1964, Wagner and Fischer 1974), compared without case and with
 * "-" and "_" alike. Pure; called by the configuration loader and by the command line on short names only.
 */

/** Longer names than this are cut before comparing: the cost is the product of the lengths. */
const maxCompared = 64;

/** Smallest number of insertions, deletions, replacements and swaps of neighbours that turns `a` into `b`. */
export function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replace = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(replace, (previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) best = Math.min(best, (before[j - 2] ?? 0) + 1);
      row.push(best);
    }
    before = previous;
    previous = row;
  }
  return previous[b.length] ?? 0;
}

/** The member of `known` closest to `name`; the first of equals. `null` only when `known` is empty. */
export function nearest(name: string, known: Iterable<string>): string | null {
  return closest(name, known, Number.POSITIVE_INFINITY);
}

/** The same, but `null` when nothing is so close that it was likely meant: at most two in five characters wrong. */
export function similar(name: string, known: Iterable<string>): string | null {
  return closest(name, known, Math.max(1, Math.min(name.length, maxCompared) * 0.4));
}

function closest(name: string, known: Iterable<string>, worst: number): string | null {
  const plain = (s: string) => s.slice(0, maxCompared).toLowerCase().replaceAll('-', '_');
  const wanted = plain(name);
  let best: string | null = null;
  let bestCost = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const other = plain(candidate);
    // A name that starts like the wanted one ("max_seq" for "max_sequences") is nearer than its length says.
    const shares = wanted.length > 2 && (other.startsWith(wanted) || wanted.startsWith(other));
    const cost = editDistance(wanted, other) - (shares ? Math.abs(wanted.length - other.length) * 0.75 : 0);
    if (cost < bestCost) {
      best = candidate;
      bestCost = cost;
    }
  }
  return bestCost <= worst ? best : null;
}
