/** A grammar's text read into a tree, with the two extensions of ours: the plain way, for tests only. */
export type Node =
  | { readonly op: 'text'; readonly text: string }
  | { readonly op: 'class'; readonly negated: boolean; readonly ranges: readonly (readonly [number, number])[] }
  | { readonly op: 'seq' | 'alt'; readonly items: readonly Node[] }
  | { readonly op: 'repeat'; readonly item: Node; readonly min: number; readonly max: number }
  | { readonly op: 'rule'; readonly name: string }
  | { readonly op: 'scope'; readonly item: Node }
  | { readonly op: 'distinct'; readonly texts: readonly string[]; readonly item: Node };

export interface Grammar {
  readonly rules: ReadonlyMap<string, Node>;
  readonly root: string;
}

export function parseGrammar(text: string, root = 'root'): Grammar {
  const rules = new Map<string, Node>();
  for (const line of text.split('\n').filter((l) => l !== '')) {
    const [, name = '', body = ''] = /^([\w-]+) ::= (.*)$/s.exec(line) ?? [];
    if (name === '' || rules.has(name)) throw new Error(`not a rule, or a second one: ${line.slice(0, 100)}`);
    rules.set(name, new Reader(body).whole());
  }
  const used = [...rules.values()].flatMap(namesIn);
  const missing = [root, ...used].find((name) => !rules.has(name));
  if (missing !== undefined) throw new Error(`no rule ${missing}`);
  return { rules, root };
}

function namesIn(node: Node): readonly string[] {
  if (node.op === 'rule') return [node.name];
  if (node.op === 'seq' || node.op === 'alt') return node.items.flatMap(namesIn);
  return 'item' in node ? namesIn(node.item) : [];
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): Node {
    const node = this.#choice();
    if (this.#at < this.#text.length) throw new Error(`left over: ${this.#text.slice(this.#at, this.#at + 60)}`);
    return node;
  }

  #match(form: RegExp): RegExpExecArray | null {
    const sticky = new RegExp(form, 'y');
    sticky.lastIndex = this.#at;
    const found = sticky.exec(this.#text);
    if (found !== null) this.#at = sticky.lastIndex;
    return found;
  }

  #choice(): Node {
    const items = [this.#sequence()];
    while (this.#match(/\s*\|/) !== null) items.push(this.#sequence());
    return items.length === 1 ? items[0]! : { op: 'alt', items };
  }

  #sequence(): Node {
    const items: Node[] = [];
    for (;;) {
      this.#match(/\s*/);
      const node = this.#item();
      if (node === null) break;
      items.push(this.#repeats(node));
    }
    if (items.length === 0) throw new Error(`nothing stands at: ${this.#text.slice(this.#at, this.#at + 60)}`);
    return items.length === 1 ? items[0]! : { op: 'seq', items };
  }

  #item(): Node | null {
    if (this.#match(/"/) !== null) return { op: 'text', text: String.fromCodePoint(...this.#points('"')) };
    if (this.#match(/\[/) !== null) return this.#class();
    if (this.#match(/\(/) !== null) return this.#closed();
    if (this.#match(/%scope\(/) !== null) return { op: 'scope', item: this.#closed() };
    if (this.#match(/%distinct\{/) !== null) {
      const texts: string[] = [];
      while (this.#match(/\s*\}\(/) === null) {
        this.#match(/\s*"/);
        texts.push(String.fromCodePoint(...this.#points('"')));
      }
      return { op: 'distinct', texts, item: this.#closed() };
    }
    const name = this.#match(/[\w-]+/)?.[0];
    return name === undefined ? null : { op: 'rule', name };
  }

  #closed(): Node {
    const node = this.#choice();
    if (this.#match(/\s*\)/) === null) throw new Error('a parenthesis is open');
    return node;
  }

  #class(): Node {
    const negated = this.#match(/\^/) !== null;
    const ranges: [number, number][] = [];
    while (this.#match(/\]/) === null) {
      const lo = this.#point();
      ranges.push([lo, this.#match(/-(?!\])/) === null ? lo : this.#point()]);
    }
    return { op: 'class', negated, ranges };
  }

  #points(end: string): number[] {
    const out: number[] = [];
    while (this.#text[this.#at] !== end) out.push(this.#point());
    this.#at++;
    return out;
  }

  #point(): number {
    const hex = this.#match(/\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))/);
    if (hex !== null) return Number.parseInt(hex[1] ?? hex[2] ?? hex[3] ?? '', 16);
    const short = this.#match(/\\([nrt\\"[\]^-])/)?.[1];
    if (short !== undefined) return ({ n: 10, r: 13, t: 9 } as Record<string, number>)[short] ?? short.charCodeAt(0);
    const point = this.#text.codePointAt(this.#at);
    if (point === undefined || point === 0x5c) throw new Error(`a character is missing or escaped oddly: ${this.#text.slice(this.#at)}`);
    this.#at += point > 0xffff ? 2 : 1;
    return point;
  }

  #repeats(node: Node): Node {
    const found = this.#match(/[*+?]|\{(\d+)(,(\d*))?\}/);
    if (found === null) return node;
    const [sign, least, comma, most] = found;
    const times: readonly [number, number] =
      sign === '*'
        ? [0, Infinity]
        : sign === '+'
          ? [1, Infinity]
          : sign === '?'
            ? [0, 1]
            : [Number(least), comma === undefined ? Number(least) : most === '' ? Infinity : Number(most)];
    return this.#repeats({ op: 'repeat', item: node, min: times[0], max: times[1] });
  }
}
