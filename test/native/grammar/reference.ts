/**
 * Grammars as trees, their GBNF text, and the slow and obvious way to tell what they match: tables over all pieces of a text, filled until
 * nothing changes. Texts are byte strings, a character a byte (latin1). Nothing is shared with the compiler but the meaning of GBNF.
 */

export type Tree =
  | { readonly kind: 'literal'; readonly text: string }
  /** Ranges of code points. */
  | { readonly kind: 'class'; readonly negated: boolean; readonly ranges: readonly (readonly [number, number])[] }
  | { readonly kind: 'sequence'; readonly items: readonly Tree[] }
  | { readonly kind: 'choice'; readonly items: readonly Tree[] }
  /** `max` null = without end. */
  | { readonly kind: 'repeat'; readonly item: Tree; readonly min: number; readonly max: number | null }
  | { readonly kind: 'rule'; readonly index: number };

const bytesOf = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const escaped = (codePoint: number): string => `\\U${codePoint.toString(16).padStart(8, '0')}`;
const nameOf = (rule: number): string => (rule === 0 ? 'root' : `r${rule}`);

function textOf(tree: Tree): string {
  switch (tree.kind) {
    case 'literal':
      return `"${[...tree.text].map((c) => escaped(c.codePointAt(0) ?? 0)).join('')}"`;
    case 'class':
      return `[${tree.negated ? '^' : ''}${tree.ranges.map(([lo, hi]) => `${escaped(lo)}-${escaped(hi)}`).join('')}]`;
    case 'sequence':
      return `(${tree.items.map(textOf).join(' ')})`;
    case 'choice':
      return `(${tree.items.map(textOf).join(' | ')})`;
    case 'repeat':
      return `(${textOf(tree.item)}){${tree.min},${tree.max ?? ''}}`;
    case 'rule':
      return nameOf(tree.index);
  }
}

/** The GBNF text of rules; rule 0 is the root. */
export function gbnf(rules: readonly Tree[]): string {
  return rules.map((rule, i) => `${nameOf(i)} ::= ${textOf(rule)}`).join('\n');
}

const inClass = (tree: Tree & { kind: 'class' }, codePoint: number): boolean =>
  tree.ranges.some(([lo, hi]) => lo <= codePoint && codePoint <= hi) !== tree.negated;

/** Spellings of all code points that are some bytes followed by more, by those bytes. */
const begun = new Map<string, number[]>();
function begunWith(bytes: string): readonly number[] {
  if (begun.size === 0) {
    for (let c = 0x80; c <= 0x10ffff; c++) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      const spelled = bytesOf(String.fromCodePoint(c));
      for (let n = 1; n < spelled.length; n++) {
        const list = begun.get(spelled.slice(0, n));
        if (list) list.push(c);
        else begun.set(spelled.slice(0, n), [c]);
      }
    }
  }
  return begun.get(bytes) ?? [];
}

/** What the rules match of one text. */
export class Reference {
  /** By tree: for each start, the ends of its matches. */
  private readonly ends = new Map<Tree, Set<number>[]>();
  /** By tree: starts from which the rest of the text is the beginning of a match. */
  private readonly starts = new Map<Tree, Set<number>>();
  private readonly productive = new Set<Tree>();
  private readonly rules: readonly Tree[];
  private readonly text: string;
  private changed = true;

  constructor(rules: readonly Tree[], text: string) {
    this.rules = rules;
    this.text = text;
    while (this.changed) {
      this.changed = false;
      for (const rule of rules) this.visit(rule);
    }
  }

  /** The text is a whole match. */
  complete(): boolean {
    return this.endsOf(this.rules[0]!, 0).has(this.text.length);
  }

  /** The text is the beginning of a match, or all of it. */
  viable(): boolean {
    return this.startsOf(this.rules[0]!).has(0);
  }

  private endsOf(tree: Tree, start: number): Set<number> {
    let all = this.ends.get(tree);
    if (all === undefined) {
      all = Array.from({ length: this.text.length + 1 }, () => new Set<number>());
      this.ends.set(tree, all);
    }
    return all[start]!;
  }

  private startsOf(tree: Tree): Set<number> {
    let all = this.starts.get(tree);
    if (all === undefined) {
      all = new Set();
      this.starts.set(tree, all);
    }
    return all;
  }

  private add<T>(set: Set<T>, value: T): void {
    if (set.has(value)) return;
    set.add(value);
    this.changed = true;
  }

  private visit(tree: Tree): void {
    if (tree.kind === 'sequence' || tree.kind === 'choice') for (const item of tree.items) this.visit(item);
    if (tree.kind === 'repeat') this.visit(tree.item);
    if (this.isProductive(tree)) this.add(this.productive, tree);
    if (!this.productive.has(tree)) return;
    for (let start = 0; start <= this.text.length; start++) {
      for (const end of this.matches(tree, start)) this.add(this.endsOf(tree, start), end);
      if (this.begins(tree, start)) this.add(this.startsOf(tree), start);
    }
  }

  private isProductive(tree: Tree): boolean {
    const has = (t: Tree): boolean => this.productive.has(t);
    switch (tree.kind) {
      case 'literal':
        return true;
      case 'class':
        return tree.negated || tree.ranges.length > 0;
      case 'sequence':
        return tree.items.every(has);
      case 'choice':
        return tree.items.some(has);
      case 'repeat':
        return tree.min === 0 || has(tree.item);
      case 'rule':
        return has(this.rules[tree.index]!);
    }
  }

  /** Ends of sequences of these trees, each at most once: positions reached behind 0, 1, 2 … of them. */
  private reach(items: readonly Tree[], start: number): Set<number>[] {
    const out = [new Set([start])];
    for (const item of items) {
      const next = new Set<number>();
      for (const at of out.at(-1)!) for (const end of this.endsOf(item, at)) next.add(end);
      out.push(next);
    }
    return out;
  }

  /** More copies than the text has bytes add nothing new but empty matches. */
  private copies(tree: Tree & { kind: 'repeat' }): { least: number; most: number } {
    const enough = tree.min + this.text.length + 1;
    return { least: tree.min, most: tree.max === null ? enough : Math.min(tree.max, enough) };
  }

  private matches(tree: Tree, start: number): Iterable<number> {
    switch (tree.kind) {
      case 'literal': {
        const bytes = bytesOf(tree.text);
        return this.text.startsWith(bytes, start) ? [start + bytes.length] : [];
      }
      case 'class': {
        const character = /^(?:[\0-\x7f]|[\xc2-\xdf].|[\xe0-\xef]..|[\xf0-\xf4]...)/s.exec(this.text.slice(start))?.[0];
        if (character === undefined) return [];
        const decoded = Buffer.from(character, 'latin1').toString('utf8');
        const good = bytesOf(decoded) === character && inClass(tree, decoded.codePointAt(0) ?? 0);
        return good ? [start + character.length] : [];
      }
      case 'sequence':
        return this.reach(tree.items, start).at(-1)!;
      case 'choice':
        return tree.items.flatMap((item) => [...this.endsOf(item, start)]);
      case 'repeat': {
        const { least, most } = this.copies(tree);
        const reached = this.reach(Array<Tree>(most).fill(tree.item), start);
        return reached.slice(least).flatMap((set) => [...set]);
      }
      case 'rule':
        return this.endsOf(this.rules[tree.index]!, start);
    }
  }

  /** The rest of the text, from `start`, is the beginning of a match, or all of it. */
  private begins(tree: Tree, start: number): boolean {
    const rest = this.text.slice(start);
    const inside = (items: readonly Tree[]): boolean =>
      this.reach(items, start).some((set, i) => i < items.length && [...set].some((at) => this.startsOf(items[i]!).has(at)));
    switch (tree.kind) {
      case 'literal':
        return bytesOf(tree.text).startsWith(rest);
      case 'class':
        if (rest === '' || this.endsOf(tree, start).has(this.text.length)) return true;
        return begunWith(rest).some((c) => inClass(tree, c));
      case 'sequence':
        return inside(tree.items) || this.endsOf(tree, start).has(this.text.length);
      case 'choice':
        return tree.items.some((item) => this.startsOf(item).has(start));
      case 'repeat': {
        const { most } = this.copies(tree);
        const whole = this.endsOf(tree, start).has(this.text.length);
        return whole || (this.productive.has(tree.item) && inside(Array<Tree>(most).fill(tree.item)));
      }
      case 'rule':
        return this.startsOf(this.rules[tree.index]!).has(start);
    }
  }
}
