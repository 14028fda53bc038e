/** A pattern with anchors, or one that is searched for, to an Expr without anchors that matches the text from its first to its last character. */
import type { Meter } from '../limits.js';
import { dfaOf } from './dfa.js';
import { alt, anyText, type Expr, hasAnchors, seq } from './expr.js';
import { exprOf } from './to-expr.js';

/** `search`: true for JSON Schema's `pattern`, which may be found anywhere; false when the whole text must match. */
export function wholeExpr(e: Expr, search: boolean, meter: Meter): Expr {
  const options = (e.op === 'alt' ? e.items : [e]).map((option) => stripped(option, search));
  // Anchors in the middle are rare; an automaton knows what they mean.
  return options.includes(null) ? exprOf(dfaOf(e, search, meter), meter) : alt(...options.flatMap((o) => (o === null ? [] : [o])));
}

function stripped(e: Expr, search: boolean): Expr | null {
  let items = e.op === 'seq' ? e.items : [e];
  let [anchoredStart, anchoredEnd] = [!search, !search];
  while (items[0]?.op === 'start') {
    anchoredStart = true;
    items = items.slice(1);
  }
  while (items.at(-1)?.op === 'end') {
    anchoredEnd = true;
    items = items.slice(0, -1);
  }
  if (items.some(hasAnchors)) return null;
  return seq(...(anchoredStart ? [] : [anyText()]), ...items, ...(anchoredEnd ? [] : [anyText()]));
}
