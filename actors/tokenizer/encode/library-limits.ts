/**
 * How long a text may be that the library encodes in the daemon's own process, where nothing can stop it or survive its panic (library.ts).
 * Longer ones are encoded apart (encode-apart.ts). Pure; called once by vocab.ts.
 */
import { runPatterns, wordPatterns } from '../model/split-patterns.js';
import { isObject, type TokenizerJson } from '../model/tokenizer-json.js';
import { canBeCut } from './cuts.js';
import { RETRY_LIMIT } from './library.js';
import { retriesAtMost } from './pattern-cost.js';
import { MAX_SLICE_BYTES } from './slices.js';

/** Where time grows with the text: a fifth to half a second of one thread of the pool. A known pattern retries 131,072 times in a match, 76 times below the limit. */
const LINEAR_CHARS = 131_072;
/** Where it may grow with the square of the text: less than half a second too. */
const SQUARE_CHARS = 4096;
/** Retries in one match that are let happen in a text of SQUARE_CHARS. */
const SAFE_RETRIES = RETRY_LIMIT / 20;
/** Characters of a literal that is searched for; the search may take the product of both lengths. */
const MAX_LITERAL_CHARS = 64;

/** Characters that may go to the library at once in this process; 0 when nothing is known of the tokenizer. */
export function inProcessChars(json: TokenizerJson): number {
  // Both go through a word once. WordPiece, for one, tries all ends of each piece.
  if (json.model['type'] !== 'BPE' && json.model['type'] !== 'Unigram') return 0;
  if (canBeCut(json)) return LINEAR_CHARS;
  return Math.min(searchedChars(json.raw['normalizer']), searchedChars(json.raw['pre_tokenizer']));
}

/** Characters that may be normalized in the tokenizer's thread; 0 when it might never be done with them. */
export function normalizedAtOnceChars(json: TokenizerJson): number {
  const chars = searchedChars(json.raw['normalizer']);
  return chars === LINEAR_CHARS ? MAX_SLICE_BYTES : chars;
}

/** For a normalizer or a pre-tokenizer alone, with all its parts. */
function searchedChars(component: unknown): number {
  let chars = LINEAR_CHARS;
  for (const pattern of patternsOf(component, 0)) {
    if (!isObject(pattern)) return 0;
    const { Regex: regex, String: literal } = pattern;
    if (typeof literal === 'string' && literal.length <= MAX_LITERAL_CHARS) continue;
    if (typeof regex !== 'string') return 0;
    if (wordPatterns.has(regex) || runPatterns.has(regex)) continue;
    if (retriesAtMost(regex, SQUARE_CHARS) > SAFE_RETRIES) return 0;
    chars = SQUARE_CHARS;
  }
  return chars;
}

const MAX_DEPTH = 16;

/** Every `pattern` in a component that may be a sequence of components. */
function patternsOf(component: unknown, depth: number): unknown[] {
  if (depth > MAX_DEPTH) return [null];
  if (Array.isArray(component)) return component.flatMap((part: unknown) => patternsOf(part, depth + 1));
  if (!isObject(component)) return [];
  return Object.entries(component).flatMap(([key, value]) => (key === 'pattern' ? [value] : patternsOf(value, depth + 1)));
}
