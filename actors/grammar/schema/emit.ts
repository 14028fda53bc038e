/** The parts of a schema as rules of a grammar: the last step, which only writes what the others have found. */
import { ConstraintError } from '../error.js';
import { alt, type Expr, isNever } from '../pattern/expr.js';
import { writeExpr } from '../pattern/write.js';
import { PLAIN_ALPHABET, STRING_ALPHABET } from '../text/json-text.js';
import { FIXED_LAYOUT, freeLayout, type Layout } from '../text/space.js';
import { anyOf, type GrammarWriter, sequence, times } from '../text/writer.js';
import { anyChar, anyKey, anyNumber, anyString, anyValue, canonicalChar } from '../value/any.js';
import { literalValue } from '../value/literal.js';
import { type Alternative, ANY_NUMBER, type Conditions, isUnrestricted, type NumberAlternative } from './alternatives.js';
import { arrayText } from './emit-array.js';
import { objectText } from './emit-object.js';
import type { Language } from './language.js';
import { canonicalNumbersOf } from './number-text.js';
import type { Parts } from './parts.js';
import type { ValueWriter } from './value-writer.js';

/** A body so short is written where it is used. */
const MAX_INLINE = 32;

export class Emitter implements ValueWriter {
  readonly parts: Parts;
  readonly writer: GrammarWriter;
  readonly #names = new Map<string, string>();

  constructor(parts: Parts, writer: GrammarWriter) {
    this.parts = parts;
    this.writer = writer;
  }

  layout(canonical: boolean): Layout {
    return canonical ? FIXED_LAYOUT : freeLayout(this.writer);
  }

  /** A fragment for the values of inhabited conditions. `canonical`: equal values are equal bytes. */
  value(conditions: Conditions, canonical: boolean): string {
    if (conditions.length === 0) return canonical ? this.#anyScalar() : anyValue(this.writer);
    const key = `${this.parts.expander.keyOf(conditions)}${canonical ? '=' : ''}`;
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    const part = this.parts.of(conditions);
    if (part === undefined) throw new Error(`conditions ${key} were not reached`);
    const name = this.writer.newName('v');
    this.#names.set(key, name);
    const possible = part.alternatives.filter((a) => this.parts.isPossible(a));
    if (canonical && possible.filter((a) => a.type === 'object' || (a.type === 'constant' && a.values.some(isPlainObject))).length > 1) {
      throw new ConstraintError(
        'The keyword "uniqueItems" is not supported for objects of several kinds, which could be equal with their keys in another order.',
      );
    }
    const body = anyOf(possible.map((a) => this.#alternative(a, canonical)));
    if (body.length > MAX_INLINE || part.alternatives.some((a) => a.type === 'array' || a.type === 'object'))
      return this.writer.define(name, body);
    this.#names.set(key, body);
    return body;
  }

  /** A string with its quotes. */
  string({ expr, min, max }: Language, canonical: boolean): string {
    if (expr !== null) return `"\\"" ${writeExpr(expr, this.writer, STRING_ALPHABET)} "\\""`;
    if (min === 0 && max === Infinity) return canonical ? anyKey(this.writer) : anyString(this.writer);
    return sequence('"\\""', times(canonical ? canonicalChar(this.writer) : anyChar(this.writer), min, max), '"\\""');
  }

  /** Where nothing is asked but that no value comes twice, lists and objects are left out: they have too many spellings. */
  #anyScalar(): string {
    return this.writer.once('scalar', () => anyOf([anyKey(this.writer), this.#number(ANY_NUMBER, true), '"true"', '"false"', '"null"']));
  }

  #alternative(a: Alternative, canonical: boolean): string {
    switch (a.type) {
      case 'constant':
        return anyOf(a.values.map((value) => literalValue(value, this.layout(canonical), this.writer)));
      case 'string':
        return this.string(this.parts.languages.of(a), canonical);
      case 'number':
        return isUnrestricted(a) && !canonical ? anyNumber(this.writer) : this.#number(a, canonical);
      case 'array':
        return arrayText(a, this, canonical);
      case 'object':
        return objectText(a, this, canonical);
    }
  }

  #number(a: NumberAlternative, canonical: boolean): string {
    const expr: Expr = canonical ? canonicalNumbersOf(a, this.writer.meter) : this.parts.numbers(a);
    if (isNever(alt(expr))) throw new ConstraintError('The keyword "uniqueItems" is not supported for these numbers.');
    return writeExpr(expr, this.writer, PLAIN_ALPHABET);
  }
}

const isPlainObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);
