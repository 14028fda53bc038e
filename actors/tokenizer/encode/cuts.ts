/**
 * Which tokenizers encode the parts of a text, one after the other, as they encode the whole, where it is cut as messages/text-cuts.ts does.
 * Used by slices.ts: the library takes a text in one go that nothing can stop (library.ts), so long ones are handed to it in slices.
 *
 * Known for tokenizers that cut text into words by the patterns of model/split-patterns.ts, or as GPT-2 does, and then look at each word
 * alone. No match of these patterns holds a character that is no white space and then a space: only their first character may be a space,
 * unless all of them are. So one match ends at the cut and another begins there; what ends there cannot look over the cut, since only
 * `\s+(?!\S)` looks ahead, and its match ends in white space. The same holds for the other cuts: a match with a letter ends with its last one
 * unless an apostrophe follows, and one with a digit too. The character behind a cut is a starter that normalization (NFC) joins with
 * nothing before it. An added token that stays in plain text is white space only, so none is cut.
 */
import { runPatterns, wordPatterns } from '../model/split-patterns.js';
import { isGuarded, isObject, type TokenizerJson } from '../model/tokenizer-json.js';

/** Whether cuts of `nextCut` are safe for this tokenizer. */
export function canBeCut(json: TokenizerJson): boolean {
  const normalizer = json.raw['normalizer'] ?? null;
  if (normalizer !== null && !(isObject(normalizer) && normalizer['type'] === 'NFC')) return false;
  // Others look at the text beside them.
  if (json.addedTokens.some((token) => !isGuarded(token) && (token.singleWord || token.lstrip || token.rstrip))) return false;
  const preTokenizer = json.raw['pre_tokenizer'];
  if (!isObject(preTokenizer)) return false;
  const parts: unknown = preTokenizer['type'] === 'Sequence' ? preTokenizer['pretokenizers'] : [preTokenizer];
  if (!Array.isArray(parts)) return false;
  const roles = parts.map(roleOf);
  return roles.includes('words') && !roles.includes('unknown');
}

/** What a pre-tokenizer does: cuts text into words, or takes something out that is no cut, or something else. */
function roleOf(part: unknown): 'words' | 'harmless' | 'unknown' {
  if (!isObject(part)) return 'unknown';
  const { type, pattern, behavior, invert } = part;
  if (type === 'Digits') return 'harmless';
  if (type === 'ByteLevel' && part['add_prefix_space'] === false) return part['use_regex'] === false ? 'harmless' : 'words';
  if (type !== 'Split' || behavior !== 'Isolated' || invert === true || !isObject(pattern)) return 'unknown';
  const regex = String(pattern['Regex']);
  if (wordPatterns.has(regex)) return 'words';
  return runPatterns.has(regex) ? 'harmless' : 'unknown';
}
