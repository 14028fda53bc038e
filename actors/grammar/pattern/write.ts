/** An Expr as GBNF: in linear size, parts that are used twice or nest deeply as rules of their own. */
import { anyOf, type GrammarWriter, sequence, times } from '../text/writer.js';
import { type Expr, fold } from './expr.js';
import type { Ranges } from './ranges.js';

/** How characters of the expression look in the answer: as they are, or as in a JSON string. */
export interface Alphabet {
  readonly hint: string;
  readonly charClass: (ranges: Ranges) => string;
  readonly literal: (text: string) => string;
}

/** Parentheses nest at most so deep in one rule. */
const MAX_NESTING = 12;
/** Repeating a fragment longer than this costs more than a rule. */
const MAX_COPIED = 40;

/** The expression must have no anchors. */
export function writeExpr(root: Expr, writer: GrammarWriter, alphabet: Alphabet): string {
  const uses = new Map<Expr, number>();
  fold<void>(root, (e, below) => {
    const parts = e.op === 'seq' || e.op === 'alt' ? e.items : e.op === 'repeat' ? [e.item] : [];
    for (const part of parts) {
      uses.set(part, (uses.get(part) ?? 0) + 1);
      below(part);
    }
  });
  const heights = new Map<Expr, number>();
  const written = fold<string>(root, (e, below) => {
    let height = 0;
    const part = (p: Expr): string => {
      const fragment = below(p);
      height = Math.max(height, (heights.get(p) ?? 0) + 1);
      return fragment;
    };
    writer.meter.tick();
    let fragment = '';
    if (e.op === 'class') fragment = alphabet.charClass(e.ranges);
    else if (e.op === 'text') fragment = e.text === '' ? '""' : alphabet.literal(e.text);
    else if (e.op === 'seq') fragment = sequence(...joined(e.items).map(part));
    else if (e.op === 'alt') fragment = anyOf(e.items.map(part));
    else if (e.op === 'repeat') fragment = times(part(e.item), e.min, e.max);
    const shared = (uses.get(e) ?? 0) > 1 && fragment.length > MAX_COPIED;
    if (!shared && height < MAX_NESTING) {
      heights.set(e, height);
      return fragment;
    }
    heights.set(e, 0);
    return writer.define(writer.newName(alphabet.hint), fragment);
  });
  return written;
}

/** Neighbouring texts as one. */
function joined(items: readonly Expr[]): readonly Expr[] {
  const out: Expr[] = [];
  for (const item of items) {
    const last = out.at(-1);
    if (last?.op === 'text' && item.op === 'text') out[out.length - 1] = { op: 'text', text: last.text + item.text };
    else out.push(item);
  }
  return out;
}
