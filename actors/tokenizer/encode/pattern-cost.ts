/**
 * How often a regular expression can make Oniguruma retry in one match: an upper bound, from its text alone. Pure; called by
 * library-limits.ts once for each pattern of a tokenizer.
 *
 * A pattern is alternatives of items; an item is a character, a class or a group, perhaps repeated. An item that may match in k ways
 * multiplies what comes behind it by k: a class repeated without limit by the length of the text, `?` by 2, a group by the sum over its
 * alternatives. What fails last counts: behind the last item that must match all others may be left out, so the match is done. A group
 * repeated without limit (`(x+x+)+y`), a reference back and whatever else is not understood have no bound.
 */

const ESCAPE = /\\[pP]\{\^?\w+\}|\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\[sSdDwWhHrntbBAzZ]|\\[^\w]/;
/** Without classes inside. */
const CLASS = /\[\^?(?!\])(?:\\.|[^[\]\\])+\]/;
const OPENING = /\((?:\?:|\?i:|\?=|\?!|(?!\?))/;
const QUANTIFIER = /([*+?]|\{\d+(?:,\d*)?\})([?+]?)/;
/** Anchors too. */
const CHARACTER = /[^\\()[\]{}*+?|]/;
/** Opening, closing, bar, quantifier and what follows it; none of these for a character. */
const TOKEN = new RegExp(
  `(${OPENING.source})|(\\))|(\\|)|${QUANTIFIER.source}|${ESCAPE.source}|${CLASS.source}|${CHARACTER.source}`,
  'gsuy',
);

interface Item {
  /** Ways in which it can match. */
  readonly ways: number;
  /** It never fails, since it can match nothing at all. */
  readonly optional: boolean;
  readonly group: boolean;
  /** Items in it, and itself. */
  readonly size: number;
}

const PLAIN: Item = { ways: 1, optional: false, group: false, size: 1 };

/** @returns an upper bound of the retries in one match in a text of `chars` characters; Infinity where there is none. */
export function retriesAtMost(pattern: string, chars: number): number {
  try {
    return new PatternReader(pattern, chars).retries();
  } catch (error) {
    if (error instanceof NotUnderstood) return Number.POSITIVE_INFINITY;
    throw error;
  }
}

class NotUnderstood extends Error {}

class PatternReader {
  readonly #tokens: readonly RegExpMatchArray[];
  readonly #chars: number;
  #at = 0;

  constructor(pattern: string, chars: number) {
    this.#tokens = [...pattern.matchAll(TOKEN)];
    this.#chars = chars;
    if (this.#tokens.reduce((sum, token) => sum + token[0].length, 0) !== pattern.length) throw new NotUnderstood();
  }

  retries(): number {
    let sum = 0;
    for (const items of this.#alternatives()) {
      const last = items.findLastIndex((item) => !item.optional);
      const before = items.filter((item, i) => i < last || (i === last && item.group));
      const behind = items.filter((item, i) => i > last && item.group);
      // Each item may fail once for each way in which those before it match.
      sum += (waysOf(before) + waysOf(behind)) * sizeOf(items);
    }
    if (this.#at < this.#tokens.length) throw new NotUnderstood();
    return sum;
  }

  /** Reads up to the end of the group, or of the pattern. */
  #alternatives(): Item[][] {
    let items: Item[] = [];
    const all = [items];
    for (; this.#at < this.#tokens.length; ) {
      const [, opening, closing, bar, quantifier] = this.#tokens[this.#at]!; // at < length
      if (closing !== undefined) break;
      if (quantifier !== undefined) throw new NotUnderstood();
      this.#at++;
      if (bar !== undefined) {
        items = [];
        all.push(items);
      } else items.push(this.#repeated(opening === undefined ? PLAIN : this.#group(opening)));
    }
    return all;
  }

  /** Behind its opening. */
  #group(opening: string): Item {
    const alternatives = this.#alternatives();
    if (this.#at >= this.#tokens.length) throw new NotUnderstood();
    this.#at++;
    const ways = alternatives.reduce((sum, items) => sum + waysOf(items), 0);
    const looks = opening === '(?=' || opening === '(?!';
    const optional = !looks && alternatives.some((items) => items.every((item) => item.optional));
    return { ways, optional, group: true, size: alternatives.reduce((sum, items) => sum + sizeOf(items), 0) };
  }

  #repeated(item: Item): Item {
    const [, , , , quantifier, kind] = this.#tokens[this.#at] ?? [];
    if (quantifier === undefined) return item;
    this.#at++;
    const [least = 0, most = Number.POSITIVE_INFINITY] = timesOf(quantifier);
    // Behind a number of times, these are quantifiers of their own.
    if (kind !== '' && quantifier.startsWith('{')) throw new NotUnderstood();
    if (item.group && most > 1) throw new NotUnderstood();
    const optional = item.optional || least === 0;
    if (item.group) return { ...item, ways: item.ways + 1, optional };
    return { ...item, ways: Math.max(1, Math.min(most, this.#chars) - least + 1), optional };
  }
}

function waysOf(items: readonly Item[]): number {
  return items.reduce((ways, item) => ways * item.ways, 1);
}

function sizeOf(items: readonly Item[]): number {
  return items.reduce((size, item) => size + item.size, 1);
}

function timesOf(quantifier: string): [number, number] {
  if (quantifier === '?') return [0, 1];
  if (quantifier === '*') return [0, Number.POSITIVE_INFINITY];
  if (quantifier === '+') return [1, Number.POSITIVE_INFINITY];
  const [least = '0', most] = quantifier.slice(1, -1).split(',');
  return [Number(least), most === undefined ? Number(least) : most === '' ? Number.POSITIVE_INFINITY : Number(most)];
}
