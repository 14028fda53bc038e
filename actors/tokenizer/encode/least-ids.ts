/**
 * The fewest ids that a text can have, without encoding it: a prompt that is far too long is refused at once. Pure; called by vocab.ts.
 *
 * Holds for BPE that loses no text: every byte has a token, and nothing before it drops or shortens text. Then each id stands for no more
 * characters than the longest token has.
 */
import { byteLevelAlphabet } from '../model/byte-decoder.js';
import { isGuarded, isObject, type TokenizerJson } from '../model/tokenizer-json.js';

/** NFC makes at most four UTF-16 units one (U+1F82; Unicode Standard Annex 15). */
const NFC_SHORTENS = 4;

/** UTF-16 units of plain text that one id may stand for; Infinity where that is not known. */
export function charsOfAnId(json: TokenizerJson): number {
  const { model, raw, addedTokens, entries } = json;
  if (model['type'] !== 'BPE' || !isObject(model['vocab']) || !keepsText(raw['pre_tokenizer'])) return Number.POSITIVE_INFINITY;
  // They swallow the white space beside them.
  if (addedTokens.some((token) => !isGuarded(token) && (token.lstrip || token.rstrip))) return Number.POSITIVE_INFINITY;
  if (!hasEveryByte(json, model['vocab'])) return Number.POSITIVE_INFINITY;
  let longest = 1;
  for (const [token] of entries) longest = Math.max(longest, token.length);
  for (const token of addedTokens) longest = Math.max(longest, token.content.length);
  return longest * shortening(raw['normalizer']);
}

/** By what a normalizer may shorten text. */
function shortening(normalizer: unknown): number {
  if (normalizer === null || normalizer === undefined) return 1;
  if (!isObject(normalizer)) return Number.POSITIVE_INFINITY;
  const { type, normalizers, pattern, content } = normalizer;
  if (type === 'NFC') return NFC_SHORTENS;
  if (type === 'Prepend') return 1;
  if (type === 'Sequence' && Array.isArray(normalizers)) return normalizers.reduce((product: number, one) => product * shortening(one), 1);
  const literal = type === 'Replace' && isObject(pattern) ? pattern['String'] : null;
  return typeof literal === 'string' && typeof content === 'string' && content.length >= literal.length ? 1 : Number.POSITIVE_INFINITY;
}

function keepsText(preTokenizer: unknown): boolean {
  if (preTokenizer === null || preTokenizer === undefined) return true;
  if (!isObject(preTokenizer)) return false;
  const { type, pretokenizers, behavior } = preTokenizer;
  if (type === 'Sequence') return Array.isArray(pretokenizers) && pretokenizers.every(keepsText);
  if (type === 'Split' || type === 'Punctuation') return behavior !== undefined && behavior !== 'Removed';
  return type === 'ByteLevel' || type === 'Metaspace' || type === 'Digits';
}

function hasEveryByte({ model, raw, addedTokens }: TokenizerJson, vocab: Record<string, unknown>): boolean {
  const guarded = new Set(addedTokens.filter(isGuarded).map((token) => token.content)); // plain text has none of them
  const has = (token: string): boolean => Object.hasOwn(vocab, token) && !guarded.has(token);
  if (model['byte_fallback'] === true) {
    return Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`).every(has);
  }
  if (!JSON.stringify(raw['pre_tokenizer'] ?? null).includes('"ByteLevel"')) return false;
  return [...byteLevelAlphabet().entries()].every(([unit, byte]) => byte < 0 || has(String.fromCharCode(unit)));
}
