/** The tokens of a tokenizer.json as bytes, and texts cut into them; for benchmarks that need a vocabulary and no tokenizer. */
import { readFileSync } from 'node:fs';

const LONGEST_TOKEN = 128;

/** The bytes that the characters of a byte-level vocabulary stand for: printable ones themselves, the others from U+0100 on. */
function byteAlphabet(): Map<string, number> {
  const out = new Map<string, number>();
  const plain = (b: number): boolean => (b > 32 && b < 127) || (b > 160 && b < 256 && b !== 173);
  let next = 256;
  for (let b = 0; b < 256; b++) out.set(String.fromCodePoint(plain(b) ? b : next++), b);
  return out;
}

/** Of a byte-level BPE, by id. */
export function readTokens(path: string): Buffer[] {
  const file = JSON.parse(readFileSync(path, 'utf8')) as { model: { vocab: Record<string, number> } };
  const bytes = byteAlphabet();
  const tokens: Buffer[] = [];
  for (const [text, id] of Object.entries(file.model.vocab)) tokens[id] = Buffer.from([...text].map((c) => bytes.get(c) ?? 0));
  return Array.from(tokens, (token) => token ?? Buffer.alloc(0));
}

export class Tokens {
  private readonly ids: Map<string, number>;

  constructor(tokens: readonly Buffer[]) {
    this.ids = new Map(tokens.map((token, id) => [token.toString('latin1'), id]));
  }

  /** The longest token each time. */
  cut(text: string): Int32Array {
    const bytes = Buffer.from(text).toString('latin1');
    const out: number[] = [];
    for (let at = 0; at < bytes.length; ) {
      let length = Math.min(LONGEST_TOKEN, bytes.length - at);
      while (length > 1 && !this.ids.has(bytes.slice(at, at + length))) length--;
      out.push(this.ids.get(bytes.slice(at, at + length)) ?? 0);
      at += length;
    }
    return Int32Array.from(out);
  }
}
