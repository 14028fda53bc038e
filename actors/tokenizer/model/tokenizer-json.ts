/**
 * A model's tokenizer.json as data: what the rooms of the tokenizer read from it, and the rewritten copy that encodes plain text.
 * Runs once in each tokenizer thread at start-up, called by encode/vocab.ts.
 *
 * Added tokens are of two kinds. Guarded ones (all that are special or hold more than white space) mark turns, tools or thoughts;
 * only added-tokens.ts may produce their ids. Text-like ones (runs of spaces or line ends, not special) are an ordinary way to
 * write text, so they stay in the copy. The copy has no way left to write a guarded token: the entry is gone from the added
 * tokens, and if the model's own vocabulary holds its text too, that entry gets a name that no text can spell (a Unigram model, or
 * a BPE with ignore_merges, would otherwise find it in user text).
 */

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly singleWord: boolean;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Searched in the normalized text, not in the raw one. */
  readonly normalized: boolean;
  readonly special: boolean;
}

type Json = Record<string, unknown>;

/** The parts of tokenizer.json that are read here; the other parts are handed to the library as they are. */
export interface TokenizerJson {
  readonly raw: Json;
  readonly model: Json;
  readonly addedTokens: readonly AddedToken[];
  /** (token, id) pairs of the model's own vocabulary. */
  readonly entries: readonly (readonly [string, number])[];
}

/** Holes that a vocabulary may have below its largest id; more means a damaged file. */
const MAX_HOLES = 65_536;

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @throws Error with one sentence when the text is not a tokenizer.json. Allocates the entries (one pair a token). */
export function parseTokenizerJson(text: string): TokenizerJson {
  const raw: unknown = JSON.parse(text);
  if (!isObject(raw) || !isObject(raw['model'])) throw new Error('it holds no tokenizer model');
  const model = raw['model'];
  const vocab = model['vocab'];
  const entries: (readonly [string, number])[] = [];
  if (Array.isArray(vocab)) {
    vocab.forEach((entry: unknown, id) => {
      if (Array.isArray(entry) && typeof entry[0] === 'string') entries.push([entry[0], id]);
    });
  } else if (isObject(vocab)) {
    for (const [token, id] of Object.entries(vocab)) if (Number.isInteger(id) && (id as number) >= 0) entries.push([token, id as number]);
  }
  if (entries.length === 0) throw new Error('its vocabulary is empty');
  const added = Array.isArray(raw['added_tokens']) ? raw['added_tokens'] : [];
  return { raw, model, entries, addedTokens: added.map(addedToken).filter((t) => t !== null) };
}

function addedToken(value: unknown): AddedToken | null {
  if (!isObject(value) || typeof value['content'] !== 'string' || value['content'] === '' || !Number.isInteger(value['id'])) return null;
  return {
    id: value['id'] as number,
    content: value['content'],
    singleWord: value['single_word'] === true,
    lstrip: value['lstrip'] === true,
    rstrip: value['rstrip'] === true,
    normalized: value['normalized'] === true,
    special: value['special'] === true,
  };
}

/** True for tokens that only a template or a raw prompt may write. */
export function isGuarded(token: AddedToken): boolean {
  return token.special || !/^[\s\u2581]+$/u.test(token.content);
}

/** A tokenizer.json for plain text, and the added token that stands for a cut between two pieces. */
export interface PlainTokenizerJson {
  readonly text: string;
  /** Spelled with the nonce, so that no prompt can hold it. */
  readonly mark: string;
}

export interface PlainOptions {
  /** A fresh random text. The copy of the same file with the same nonce has the same ids. */
  readonly nonce: string;
  /** False when the caller normalizes the pieces itself. */
  readonly keepNormalizer: boolean;
}

/**
 * Copy of the tokenizer that cannot write a guarded token, adds no special tokens, truncates nothing, and knows `mark`.
 * Changes `json.raw`'s vocabulary in place (it is large), so call it last.
 */
export function plainTokenizerJson(json: TokenizerJson, { nonce, keepNormalizer }: PlainOptions): PlainTokenizerJson {
  const mark = `\u{10FFFD}${nonce}\u{10FFFD}`;
  const hidden = (what: string): string => `\u{10FFFD}${what}-${nonce}`;
  const model = json.model;
  const vocab = model['vocab'];
  const renamed = new Set<string>();
  for (const token of json.addedTokens.filter(isGuarded)) {
    // The unknown token is named by its text; it is no control token and plain text cannot spell it by merges.
    if (token.content === model['unk_token']) continue;
    if (Array.isArray(vocab)) {
      const entry: unknown = vocab[token.id];
      if (Array.isArray(entry) && entry[0] === token.content) entry[0] = hidden(`id${token.id}`);
    } else if (isObject(vocab) && Object.hasOwn(vocab, token.content)) {
      vocab[hidden(`id${token.id}`)] = vocab[token.content];
      delete vocab[token.content];
      renamed.add(token.content);
    }
  }
  if (renamed.size > 0 && Array.isArray(model['merges'])) model['merges'] = model['merges'].filter((m: unknown) => !touches(m, renamed));
  if (isObject(vocab)) fillHoles(vocab, json.entries, hidden);
  const kept = (json.raw['added_tokens'] as unknown[] | undefined)?.filter((t) => {
    const token = addedToken(t);
    return token !== null && !isGuarded(token);
  });
  const markToken = { id: 0, content: mark, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const copy: Json = {
    ...json.raw,
    added_tokens: [...(kept ?? []), markToken],
    post_processor: null,
    truncation: null,
    padding: null,
    ...(keepNormalizer ? {} : { normalizer: null }),
  };
  return { text: JSON.stringify(copy), mark };
}

function touches(merge: unknown, renamed: ReadonlySet<string>): boolean {
  const parts: unknown[] = typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
  const [left, right] = parts;
  if (typeof left !== 'string' || typeof right !== 'string') return false;
  return renamed.has(left) || renamed.has(right) || renamed.has(left + right);
}

/** The library numbers added tokens from the *count* of entries, so holes would let the mark share the id of a real token. */
function fillHoles(vocab: Json, entries: TokenizerJson['entries'], hidden: (what: string) => string): void {
  let max = -1;
  for (const [, id] of entries) if (id > max) max = id;
  const holes = max + 1 - entries.length;
  if (holes <= 0) return;
  if (holes > MAX_HOLES) throw new Error(`its vocabulary names id ${max} but has ${entries.length} entries only`);
  const used = new Uint8Array(max + 1);
  for (const [, id] of entries) used[id] = 1;
  for (let id = 0; id <= max; id++) if (used[id] === 0) vocab[hidden(`hole${id}`)] = id;
}
