/** Whether a text is of a grammar: by trying everything, which is slow and obviously right. Counts steps, so that no test hangs. */
import type { Grammar, Node } from './gbnf.js';

/** Texts matched by `%distinct` in each open scope, innermost first. */
interface Scopes {
  readonly seen: readonly string[];
  readonly outer: Scopes | null;
}
interface Place {
  readonly at: number;
  readonly scopes: Scopes | null;
}

const MAX_STEPS = 3_000_000;

export function recognises(grammar: Grammar, text: string): boolean {
  let steps = 0;
  const rule = (name: string): Node => grammar.rules.get(name)!; // parseGrammar has seen that all are there

  function* match(node: Node, place: Place): Generator<Place> {
    if (++steps > MAX_STEPS) throw new Error('the text takes too many steps');
    switch (node.op) {
      case 'text':
        if (text.startsWith(node.text, place.at)) yield { ...place, at: place.at + node.text.length };
        return;
      case 'class': {
        const point = text.codePointAt(place.at);
        if (point === undefined) return;
        const inside = node.ranges.some(([lo, hi]) => lo <= point && point <= hi);
        if (inside !== node.negated) yield { ...place, at: place.at + (point > 0xffff ? 2 : 1) };
        return;
      }
      case 'seq':
        yield* sequence(node.items, 0, place);
        return;
      case 'alt':
        for (const item of node.items) yield* match(item, place);
        return;
      case 'repeat':
        yield* repeat(node, place);
        return;
      case 'rule':
        yield* match(rule(node.name), place);
        return;
      case 'scope':
        for (const end of match(node.item, { at: place.at, scopes: { seen: [], outer: place.scopes } }))
          yield { at: end.at, scopes: end.scopes!.outer };
        return;
      case 'distinct':
        for (const end of match(node.item, place)) {
          const own = text.slice(place.at, end.at);
          if (end.scopes === null) throw new Error('%distinct stands in no scope');
          if (!node.texts.includes(own) && !end.scopes.seen.includes(own))
            yield { at: end.at, scopes: { ...end.scopes, seen: [...end.scopes.seen, own] } };
        }
    }
  }

  function* sequence(items: readonly Node[], i: number, place: Place): Generator<Place> {
    if (i === items.length) yield place;
    else for (const next of match(items[i]!, place)) yield* sequence(items, i + 1, next);
  }

  /** A single character repeated is run through at once, the longest first; others by going deeper for each. */
  function* repeat(node: Node & { op: 'repeat' }, place: Place): Generator<Place> {
    const leaf = node.item.op === 'rule' ? rule(node.item.name) : node.item;
    if (isOneChar(leaf)) {
      const places = [place];
      while (places.length <= node.max) {
        const [next] = match(leaf, places.at(-1)!);
        if (next === undefined) break;
        places.push(next);
      }
      for (let i = places.length - 1; i >= node.min; i--) yield places[i]!;
      return;
    }
    yield* more(node, place, 0);
  }

  function* more(node: Node & { op: 'repeat' }, place: Place, count: number): Generator<Place> {
    if (count < node.max) {
      for (const next of match(node.item, place)) if (next.at > place.at || count < node.min) yield* more(node, next, count + 1);
    }
    if (count >= node.min) yield place;
  }

  for (const end of match(rule(grammar.root), { at: 0, scopes: null })) if (end.at === text.length) return true;
  return false;
}

/** Matches in one way at most: a class, or classes behind an escape that none of them holds. */
function isOneChar(node: Node): boolean {
  if (node.op === 'class') return true;
  const first = (n: Node): Node => (n.op === 'seq' ? n.items[0]! : n);
  return node.op === 'alt' && node.items.every((i) => i.op !== 'rule' && ['class', 'text'].includes(first(i).op)) && node.items.length <= 2;
}
