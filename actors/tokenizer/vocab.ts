/**
 * The model's tokenizer in memory: plain-text encoding by the Rust library `tokenizers` (this file is its only user), or at once where
 * the text is short and of the common kind (byte-pair.ts), the cuts at control tokens, the special tokens that surround a raw prompt, and
 * the id -> bytes table. Loaded once a tokenizer thread.
 *
 * Only plain text ever reaches the library. encode.ts cuts a prompt into control tokens and plain text; here each control token is
 * replaced by one `mark`, an added token of the rewritten tokenizer, the whole is encoded in one call off the event loop, and every
 * mark in the answer is replaced by its control token's id. One call keeps what depends on the place of a piece exact (a Metaspace
 * pre-tokenizer may put a space before the first piece only), costs one hop to the thread pool, and holds the vocabulary once.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer } from 'tokenizers';
import { AddedTokenSplitter, type Segment } from './added-tokens.js';
import { TokenTable } from './byte-decoder.js';
import { BytePairEncoder } from './byte-pair.js';
import { isGuarded, parseTokenizerJson, plainTokenizerJson, type TokenizerJson } from './tokenizer-json.js';

export interface Vocabulary {
  readonly table: TokenTable;
  /** Text of every guarded added token. */
  readonly guarded: readonly string[];
  /** Cuts raw text at control tokens. */
  split(text: string): Segment[];
  /** Ids of the segments, in order; no plain text becomes a control token. Fails only when the library does. */
  encode(segments: readonly Segment[]): number[] | Promise<number[]>;
  /** Special tokens that the tokenizer puts before and behind a raw prompt. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
}

/**
 * Reads `tokenizer.json` of a model folder. Blocks for about 1.5 s with a vocabulary of 128 k tokens.
 * @param vocabSize rows of the model's output: ids are 0 .. vocabSize - 1.
 * @throws Error with one sentence that names the file.
 */
export async function loadVocabulary(folder: string, vocabSize: number): Promise<Vocabulary> {
  const path = join(folder, 'tokenizer.json');
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new Error(`The model has no tokenizer: ${path} cannot be read. Models need a tokenizer.json in the Hugging Face format.`, {
      cause,
    });
  }
  try {
    return await buildVocabulary(parseTokenizerJson(text), vocabSize);
  } catch (cause) {
    throw new Error(`The tokenizer ${path} cannot be used: ${cause instanceof Error ? cause.message : String(cause)}.`, { cause });
  }
}

async function buildVocabulary(json: TokenizerJson, vocabSize: number): Promise<Vocabulary> {
  const guarded = json.addedTokens.filter((t) => isGuarded(t) && t.id < vocabSize);
  const table = new TokenTable(json, vocabSize);
  const bare = bareTokenizer(json);
  const [prefix, suffix] = await surroundingTokens(bare);
  const outside = [...prefix, ...suffix].find((id) => id >= vocabSize);
  if (outside !== undefined) throw new Error(`it puts token ${outside} around prompts, but the model has ${vocabSize} ids only`);
  const control = new Uint8Array(vocabSize);
  for (const token of guarded) if (token.content !== json.model['unk_token']) control[token.id] = 1;
  // A token that is searched in normalized text can only be found there, so then the pieces are normalized before the cut.
  const normalizer = guarded.some((t) => t.normalized) ? bare.getNormalizer() : null;
  const splitter = new AddedTokenSplitter(guarded, (text) => normalizer?.normalizeString(text) ?? text);
  const plain = plainTokenizerJson(json, normalizer === null);
  const tokenizer = Tokenizer.fromString(plain.text);
  const markId = tokenizer.tokenToId(plain.mark);
  if (markId === null) throw new Error('it cannot be extended by an added token');
  const moved = movedTokens(json, tokenizer);
  const bytePair = json.addedTokens.every(isGuarded) ? BytePairEncoder.of(json) : null;

  /** For control tokens, which have an id, and plain text between them. */
  const encodeAtOnce = (encoder: BytePairEncoder, segments: readonly Segment[]): number[] | null => {
    const plainIds = encoder.encode(segments.flatMap((segment) => (segment.id === null ? [segment.text] : [])));
    if (plainIds === null) return null;
    const ids: number[] = [];
    let next = 0;
    for (const segment of segments) {
      if (segment.id !== null) ids.push(segment.id);
      else {
        for (const id of plainIds[next++] ?? []) {
          if (control[id] === 1) throw new Error('plain text became a control token');
          ids.push(id);
        }
      }
    }
    return ids;
  };
  const encodeByLibrary = async (segments: readonly Segment[]): Promise<number[]> => {
    let text = '';
    const marks: number[] = [];
    for (const segment of segments) {
      if (segment.id === null) text += segment.text;
      else {
        text += plain.mark;
        marks.push(segment.id);
      }
    }
    if (marks.length === segments.length) return marks;
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
    let mark = 0;
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!; // i < length
      if (id === markId) ids[i] = marks[mark++] ?? -1;
      else if (moved?.has(id)) ids[i] = moved.get(id) ?? id;
      else if (control[id] === 1) throw new Error('plain text became a control token');
    }
    if (mark !== marks.length) throw new Error('control tokens were lost or added in encoding');
    return ids;
  };
  const encode = (segments: readonly Segment[]): number[] | Promise<number[]> =>
    (bytePair && encodeAtOnce(bytePair, segments)) ?? encodeByLibrary(segments);
  return { table, guarded: guarded.map((t) => t.content), split: (text) => splitter.split(text), encode, prefix, suffix };
}

/** Text-like added tokens whose id in the rewritten tokenizer differs: id there -> id in the model. */
function movedTokens(json: TokenizerJson, tokenizer: Tokenizer): ReadonlyMap<number, number> | null {
  const map = new Map<number, number>();
  for (const token of json.addedTokens.filter((t) => !isGuarded(t))) {
    const id = tokenizer.tokenToId(token.content);
    if (id !== null && id !== token.id) map.set(id, token.id);
  }
  return map.size === 0 ? null : map;
}

/** Id of the only token of `bareTokenizer`. */
const PROBE_ID = 2 ** 31 - 1;

/** The normalizer and the post-processor of the tokenizer around a vocabulary of one token, `x`. */
function bareTokenizer(json: TokenizerJson): Tokenizer {
  const bare = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [],
    normalizer: json.raw['normalizer'] ?? null,
    pre_tokenizer: null,
    post_processor: json.raw['post_processor'] ?? null,
    decoder: null,
    model: { type: 'WordLevel', vocab: { x: PROBE_ID }, unk_token: 'x' },
  };
  return Tokenizer.fromString(JSON.stringify(bare));
}

/** What the post-processor puts around a text, whatever kind of post-processor it is. */
async function surroundingTokens(bare: Tokenizer): Promise<readonly [number[], number[]]> {
  const ids = (await bare.encode('x', null, { addSpecialTokens: true })).getIds();
  const at = ids.indexOf(PROBE_ID);
  if (at < 0) throw new Error('its post-processor drops the text');
  return [ids.slice(0, at), ids.slice(ids.lastIndexOf(PROBE_ID) + 1)];
}
