/** The automata of a schema's patterns and formats, each made once, to find them in names and constants. */
import type { Path } from '../error.js';
import type { Meter } from '../limits.js';
import type { Expr } from '../pattern/expr.js';
import { matches, type Nfa, nfaOf } from '../pattern/nfa.js';
import { parsePattern } from '../pattern/parse.js';
import type { Pattern } from './alternatives.js';

export class PatternBook {
  readonly #meter: Meter;
  readonly #patterns = new Map<string, Pattern>();
  readonly #automata = new Map<Expr, Nfa>();

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  read(source: string, path: Path): Pattern {
    const known = this.#patterns.get(source);
    if (known !== undefined) return known;
    const pattern = { source, expr: parsePattern(source, this.#meter.limits, path) };
    this.#patterns.set(source, pattern);
    return pattern;
  }

  /** Whether the expression is found anywhere in the text. */
  finds(expr: Expr, text: string): boolean {
    let nfa = this.#automata.get(expr);
    if (nfa === undefined) {
      nfa = nfaOf(expr, this.#meter);
      this.#automata.set(expr, nfa);
    }
    return matches(nfa, text, this.#meter);
  }
}
