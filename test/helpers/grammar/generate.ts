/** Random texts of a grammar. Parts that need few rules to end are chosen once a text is long. */
import type { Grammar, Node } from './gbnf.js';

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

class UsedUp extends Error {}

export class TextGenerator {
  readonly #grammar: Grammar;
  readonly #heights = new Map<string, number>();
  #random: () => number = () => 0;
  #length = 0;
  #scopes: Set<string>[] = [];

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
    for (let changed = true; changed; ) {
      changed = false;
      for (const [name, node] of grammar.rules) {
        const height = this.#height(node) + 1;
        if (height < (this.#heights.get(name) ?? Infinity)) {
          this.#heights.set(name, height);
          changed = true;
        }
      }
    }
  }

  /** A text of the grammar; null where `%distinct` found no other text in many tries. */
  text(random: () => number): string | null {
    this.#random = random;
    for (let tries = 0; tries < 20; tries++) {
      this.#length = 0;
      this.#scopes = [];
      try {
        return this.#make({ op: 'rule', name: this.#grammar.root });
      } catch (error) {
        if (!(error instanceof UsedUp)) throw error;
      }
    }
    return null;
  }

  /** Rules until the shortest end. */
  #height(node: Node): number {
    switch (node.op) {
      case 'rule':
        return this.#heights.get(node.name) ?? Infinity;
      case 'seq':
        return Math.max(...node.items.map((i) => this.#height(i)));
      case 'alt':
        return Math.min(...node.items.map((i) => this.#height(i)));
      case 'repeat':
        return node.min === 0 ? 0 : this.#height(node.item);
      case 'scope':
      case 'distinct':
        return this.#height(node.item);
      default:
        return 0;
    }
  }

  #below(n: number): number {
    return Math.floor(this.#random() * n);
  }

  #make(node: Node): string {
    const long = this.#length > 300;
    switch (node.op) {
      case 'text':
        this.#length += node.text.length;
        return node.text;
      case 'class':
        this.#length++;
        return this.#char(node);
      case 'seq':
        return node.items.map((i) => this.#make(i)).join('');
      case 'alt': {
        const least = Math.min(...node.items.map((i) => this.#height(i)));
        const options = long ? node.items.filter((i) => this.#height(i) === least) : node.items.filter((i) => this.#height(i) < Infinity);
        return this.#make(options[this.#below(options.length)]!);
      }
      case 'repeat': {
        const most = Math.min(node.max, node.min + [0, 1, 1, 2, 3, 9][this.#below(6)]!);
        const count = long || this.#height(node.item) === Infinity ? node.min : this.#random() < 0.05 && node.max < 70 ? node.max : most;
        return Array.from({ length: count }, () => this.#make(node.item)).join('');
      }
      case 'rule':
        return this.#make(this.#grammar.rules.get(node.name)!);
      case 'scope': {
        this.#scopes.push(new Set());
        const text = this.#make(node.item);
        this.#scopes.pop();
        return text;
      }
      case 'distinct':
        for (let tries = 0; tries < 30; tries++) {
          const text = this.#make(node.item);
          const seen = this.#scopes.at(-1)!;
          if (node.texts.includes(text) || seen.has(text)) continue;
          seen.add(text);
          return text;
        }
        throw new UsedUp();
    }
  }

  #char(node: Node & { op: 'class' }): string {
    const [lo, hi] = node.ranges[this.#below(node.ranges.length)]!;
    if (!node.negated)
      return String.fromCodePoint(this.#random() < 0.5 ? lo + this.#below(Math.min(hi - lo + 1, 40)) : lo + this.#below(hi - lo + 1));
    for (;;) {
      const point = this.#random() < 0.8 ? 0x20 + this.#below(0x60) : this.#below(0x110000);
      if ((point < 0xd800 || point > 0xdfff) && !node.ranges.some(([a, b]) => a <= point && point <= b)) return String.fromCodePoint(point);
    }
  }
}
