/**
 * Encodes short plain text at once, in the tokenizer's thread. The library (vocab.ts) encodes on the thread pool only, and the way there
 * and back costs more than encoding a hundred tokens. Used by vocab.ts, which hands everything that this file leaves to the library.
 *
 * What it saves (Node 20, 2 cores of Zen 4, 84 ids): encoded again and again, a text takes 5 us here and 110 there; once in 40 ms, as
 * prompts come, 20 and 290, so that each first token comes 0.27 ms sooner. To be dropped when the package `tokenizers` can encode in the
 * thread that asks.
 *
 * Knows one family: byte-level BPE behind one of the patterns below (GPT-2, Llama 3, Qwen 2 and 3), nothing else that changes text.
 * And of text only characters on which every implementation agrees what is a letter, a number and a space, and which are their own
 * normal form (NFC): ASCII, Latin-1 and Latin Extended-A up to U+017E, and dashes and quotation marks of General Punctuation. So the ids
 * are the library's; test/actors/tokenizer/encode/byte-pair.test.ts compares them.
 *
 * The time is bounded: long texts and long words are left to the thread pool.
 */
import { byteLevelAlphabet } from '../model/byte-decoder.js';
import { llama3, qwen2 } from '../model/split-patterns.js';
import { isObject, type TokenizerJson } from '../model/tokenizer-json.js';

/** Characters of all pieces of a prompt together; about a millisecond when no word of it was met before. */
const MAX_CHARS = 4096;
/** Bytes of a word: merging takes the square of it. */
const MAX_WORD_BYTES = 64;
/** Words whose ids are kept. Few texts have more, and then it begins anew. */
const MAX_KNOWN_WORDS = 8192;

const AGREED = /^[\t\n\r\x20-\x7e\xa0-\u017e\u2010-\u2027]*$/;

const contractions = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])";
const bigWords = (numbers: string): RegExp =>
  new RegExp(String.raw`${contractions}|[^\r\n\p{L}\p{N}]?\p{L}+|${numbers}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, 'gu');

/** How text is cut into words: as tokenizer.json writes it, and the same for this engine. */
const SPLITS: ReadonlyMap<string, RegExp> = new Map([
  [qwen2, bigWords(String.raw`\p{N}`)],
  [llama3, bigWords(String.raw`\p{N}{1,3}`)],
]);
/** What ByteLevel does when it cuts by itself. */
const GPT2_SPLIT = /'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

export class BytePairEncoder {
  readonly #split: RegExp;
  readonly #byteIds: Int32Array;
  readonly #merges: Merges;
  /** Ids of words that are tokens as they stand, whatever the merges say; null where merges decide. */
  readonly #whole: ReadonlyMap<string, number> | null;
  readonly #known = new Map<string, readonly number[]>();

  private constructor(split: RegExp, byteIds: Int32Array, merges: Merges, whole: ReadonlyMap<string, number> | null) {
    this.#split = split;
    this.#byteIds = byteIds;
    this.#merges = merges;
    this.#whole = whole;
  }

  /** `json`: no added token may be left to find in plain text. @returns null for tokenizers of another kind */
  static of(json: TokenizerJson): BytePairEncoder | null {
    const { raw, model } = json;
    const normalizer = raw['normalizer'] ?? null;
    if (normalizer !== null && !(isObject(normalizer) && normalizer['type'] === 'NFC')) return null;
    const split = splitOf(raw['pre_tokenizer']);
    const { vocab, merges } = model;
    if (split === null || model['type'] !== 'BPE' || !isObject(vocab) || !Array.isArray(merges)) return null;
    if (model['dropout'] || model['byte_fallback'] || model['continuing_subword_prefix'] || model['end_of_word_suffix']) return null;
    const ids = new Map(Object.entries(vocab) as [string, number][]); // proof: the library has read the same file
    const byteIds = new Int32Array(256);
    for (const [unit, byte] of byteLevelAlphabet().entries()) {
      if (byte < 0) continue;
      const id = ids.get(String.fromCharCode(unit));
      if (id === undefined) return null;
      byteIds[byte] = id;
    }
    const table = Merges.of(merges, ids);
    return table && new BytePairEncoder(split, byteIds, table, model['ignore_merges'] === true ? ids : null);
  }

  /** The ids of each text, or null when one of them is not for this file. */
  encode(texts: readonly string[]): (readonly number[])[] | null {
    let chars = 0;
    for (const text of texts) {
      chars += text.length;
      if (chars > MAX_CHARS || !AGREED.test(text)) return null;
    }
    const all: number[][] = [];
    for (const text of texts) {
      const ids: number[] = [];
      for (const word of text.match(this.#split) ?? []) {
        const own = this.#known.get(word) ?? this.#learn(word);
        if (own === null) return null;
        for (const id of own) ids.push(id);
      }
      all.push(ids);
    }
    return all;
  }

  #learn(word: string): readonly number[] | null {
    const bytes = Buffer.from(word, 'utf8');
    if (bytes.length > MAX_WORD_BYTES) return null;
    const whole = this.#whole?.get(spelled(bytes));
    const ids = whole === undefined ? this.#merged(bytes) : [whole];
    if (this.#known.size >= MAX_KNOWN_WORDS) this.#known.clear();
    this.#known.set(word, ids);
    return ids;
  }

  /** Joins the pair of the lowest rank, the leftmost of equals, until no pair can be joined. */
  #merged(bytes: Uint8Array): readonly number[] {
    const ids = Array.from(bytes, (byte) => this.#byteIds[byte]!); // one for each byte
    for (;;) {
      let at = -1;
      let least = Number.POSITIVE_INFINITY;
      let joined = 0;
      for (let i = 0; i + 1 < ids.length; i++) {
        const merge = this.#merges.find(ids[i]!, ids[i + 1]!); // i + 1 < length
        if (merge >= 0 && this.#merges.rank(merge) < least) {
          at = i;
          least = this.#merges.rank(merge);
          joined = this.#merges.joined(merge);
        }
      }
      if (at < 0) return ids;
      ids.splice(at, 2, joined);
    }
  }
}

const spellings = new Map(Array.from(byteLevelAlphabet().entries(), ([unit, byte]) => [byte, String.fromCharCode(unit)]));

/** A word as byte-level vocabularies write it. */
function spelled(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += spellings.get(byte) ?? '';
  return text;
}

function splitOf(preTokenizer: unknown): RegExp | null {
  if (!isObject(preTokenizer)) return null;
  if (isByteLevel(preTokenizer)) return preTokenizer['use_regex'] === false ? null : GPT2_SPLIT;
  const parts = preTokenizer['type'] === 'Sequence' ? preTokenizer['pretokenizers'] : null;
  if (!Array.isArray(parts) || parts.length !== 2) return null;
  const [split, bytes] = parts as readonly unknown[];
  if (!isObject(split) || !isObject(bytes) || !isByteLevel(bytes) || bytes['use_regex'] !== false) return null;
  const { type, pattern, behavior, invert } = split;
  if (type !== 'Split' || behavior !== 'Isolated' || invert === true || !isObject(pattern)) return null;
  return SPLITS.get(String(pattern['Regex'])) ?? null;
}

const isByteLevel = (part: Record<string, unknown>): boolean => part['type'] === 'ByteLevel' && part['add_prefix_space'] === false;

const EMPTY = -1;
/** Words of an entry: the two ids, the id of both joined, the rank. */
const ENTRY = 4;

/** Rank and result of each pair of ids that may be joined: a hash table in one array, since there may be hundreds of thousands. */
class Merges {
  readonly #words: Int32Array;
  readonly #mask: number;

  private constructor(size: number) {
    const buckets = 2 ** Math.ceil(Math.log2(Math.max(2, size * 1.5)));
    this.#words = new Int32Array(buckets * ENTRY).fill(EMPTY);
    this.#mask = buckets - 1;
  }

  /** `list`: in the order of their ranks, as "a b" or ["a", "b"]. @returns null when one names no tokens */
  static of(list: readonly unknown[], ids: ReadonlyMap<string, number>): Merges | null {
    const merges = new Merges(list.length);
    for (const [rank, pair] of list.entries()) {
      const [left, right] = typeof pair === 'string' ? pair.split(' ') : (pair as readonly string[]); // proof: as for the vocabulary
      const a = ids.get(left ?? '');
      const b = ids.get(right ?? '');
      const joined = ids.get(`${left}${right}`);
      if (a === undefined || b === undefined || joined === undefined) return null;
      merges.#words.set([a, b, joined, rank], merges.#bucket(a, b) * ENTRY);
    }
    return merges;
  }

  /** A handle of the pair, or a negative number. */
  find(a: number, b: number): number {
    const bucket = this.#bucket(a, b);
    return this.#words[bucket * ENTRY] === EMPTY ? -1 : bucket;
  }

  joined(merge: number): number {
    return this.#words[merge * ENTRY + 2]!; // a handle of `find`
  }

  rank(merge: number): number {
    return this.#words[merge * ENTRY + 3]!; // a handle of `find`
  }

  /** Where the pair is, or would be. */
  #bucket(a: number, b: number): number {
    const words = this.#words;
    let bucket = (Math.imul(Math.imul(a, 0x9e3779b1) ^ b, 0x85ebca6b) >>> 7) & this.#mask;
    while (words[bucket * ENTRY] !== EMPTY && (words[bucket * ENTRY] !== a || words[bucket * ENTRY + 1] !== b))
      bucket = (bucket + 1) & this.#mask;
    return bucket;
  }
}
