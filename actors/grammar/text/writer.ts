/**
 * The text of a grammar while it is made: rules by name, fragments as strings. A fragment that can stand in any place (a literal, a
 * class, a name, parentheses) is called an atom.
 */
import { ConstraintError } from '../error.js';
import type { Meter } from '../limits.js';
import type { Ranges } from '../pattern/ranges.js';

/** Literals and classes are written in ASCII, so that nothing depends on how a text is stored. */
function escaped(point: number, special: string): string {
  const c = String.fromCodePoint(point);
  if (special.includes(c)) return `\\${c}`;
  if (point >= 0x20 && point < 0x7f) return c;
  if (point === 10) return '\\n';
  if (point === 13) return '\\r';
  if (point === 9) return '\\t';
  if (point < 0x100) return `\\x${point.toString(16).padStart(2, '0')}`;
  return point < 0x10000 ? `\\u${point.toString(16).padStart(4, '0')}` : `\\U${point.toString(16).padStart(8, '0')}`;
}

/** A text as a literal of GBNF. */
export const literal = (text: string): string => `"${[...text].map((c) => escaped(c.codePointAt(0) ?? 0, '"\\')).join('')}"`;

/** A set of characters as a class of GBNF. */
export const charClass = (ranges: Ranges): string =>
  `[${ranges.map(([lo, hi]) => (lo === hi ? escaped(lo, '[]\\^-') : `${escaped(lo, '[]\\^-')}-${escaped(hi, '[]\\^-')}`)).join('')}]`;

/** Alternatives as one atom. */
export const anyOf = (fragments: readonly string[]): string => (fragments.length === 1 ? fragments[0]! : `(${fragments.join(' | ')})`);

/** A fragment in parentheses unless it is an atom already. */
export const atom = (fragment: string): string => (/^([\w-]+|\([^()]*\)|\[[^\]\\]*\])$/.test(fragment) ? fragment : `(${fragment})`);

/** An atom so many times; empty for none. */
export function times(item: string, min: number, max: number): string {
  if (max === 0) return '';
  if (min === 1 && max === 1) return item;
  const suffix =
    max === Infinity
      ? min === 0
        ? '*'
        : min === 1
          ? '+'
          : `{${min},}`
      : min === max
        ? `{${min}}`
        : min === 0 && max === 1
          ? '?'
          : `{${min},${max}}`;
  return `${atom(item)}${suffix}`;
}

/** Fragments one after the other. */
export const sequence = (...fragments: readonly string[]): string => fragments.filter((f) => f !== '').join(' ');

export class GrammarWriter {
  readonly meter: Meter;
  /** Set when %scope or %distinct is used. */
  extensions = false;
  readonly #rootName: string;
  readonly #rules: string[] = [];
  readonly #named = new Map<string, string>();
  #numBytes = 0;
  #numNames = 0;

  constructor(rootName: string, meter: Meter) {
    this.#rootName = rootName;
    this.meter = meter;
  }

  /** A name for a rule that `define` is called for later. */
  newName(hint: string): string {
    return `${this.#rootName}-${hint}${++this.#numNames}`;
  }

  define(name: string, body: string): string {
    this.#numBytes += name.length + body.length + 6;
    if (this.#numBytes > this.meter.limits.maxGrammarBytes) {
      throw new ConstraintError(
        `The grammar of the constraint is larger than structured_output.max_grammar_bytes = ${this.meter.limits.maxGrammarBytes}.`,
      );
    }
    this.meter.tick();
    this.#rules.push(`${name} ::= ${body === '' ? '""' : body}`);
    return name;
  }

  /** The rule of a fixed name, made at its first use. */
  once(hint: string, body: () => string): string {
    const known = this.#named.get(hint);
    if (known !== undefined) return known;
    const name = `${this.#rootName}-${hint}`;
    this.#named.set(hint, name);
    return this.define(name, body());
  }

  /** A scope: `%distinct` inside it never matches the same bytes twice. */
  scope(body: string): string {
    this.extensions = true;
    return `%scope( ${body} )`;
  }

  /** Bytes that are none of `texts` and were not matched before in the scope. */
  distinct(texts: readonly string[], body: string): string {
    this.extensions = true;
    return `%distinct{${texts.map((t) => ` ${literal(t)}`).join('')} }( ${body} )`;
  }

  /** The whole text, the root rule first. */
  finish(root: string): string {
    this.define(this.#rootName, root);
    const last = this.#rules.pop() ?? '';
    return `${[last, ...this.#rules].join('\n')}\n`;
  }
}
