/**
 * Where a text may be cut so that the ids of its parts, one after the other, are those of the whole. Used by slices.ts: the library takes
 * a text in one go that nothing can stop (library.ts), so long ones are handed to it in slices.
 *
 * Known for tokenizers that cut text into words by the patterns of model/split-patterns.ts, or as GPT-2 does, and then look at each word
 * alone. A cut is safe
 *   - before a space (U+0020) behind a character that is no white space, and
 *   - behind a plain letter or digit, before a line end, a sign (but no apostrophe) or a mark of East Asian punctuation, and
 *   - behind a plain letter, before a digit (base64).
 * No match of these patterns holds a character that is no white space and then a space: only their first character may be a space,
 * unless all of them are. So one match ends at the cut and another begins there; what ends there cannot look over the cut, since only
 * `\s+(?!\S)` looks ahead, and its match ends in white space. The same holds for the others: a match with a letter ends with its last one
 * unless an apostrophe follows, and one with a digit too. The character behind a cut is a starter that normalization (NFC) joins with
 * nothing before it. An added token that stays in plain text is white space only, so none is cut.
 */
import { runPatterns, wordPatterns } from '../model/split-patterns.js';
import { isGuarded, isObject, type TokenizerJson } from '../model/tokenizer-json.js';

/** Whether `nextCut` holds for this tokenizer. */
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

/** East Asian comma, full stop, exclamation mark, colon, semicolon, question mark. */
const EAST_ASIAN_SIGNS: ReadonlySet<number> = new Set([0x3001, 0x3002, 0xff01, 0xff0c, 0xff1a, 0xff1b, 0xff1f]);
const APOSTROPHE = 0x27;

/** The first place from `from` on where a text may be cut; when there is none before `until`, that or the end. A few ns a character. */
export function nextCut(text: string, from: number, until: number): number {
  const end = Math.min(text.length, until);
  for (let at = Math.max(1, from); at < end; at++) {
    const before = text.charCodeAt(at - 1);
    const unit = text.charCodeAt(at);
    if (unit === 0x20) {
      if (!maybeSpace(before)) return at;
    } else if (isDigit(unit)) {
      if (isPlain(before) && !isDigit(before)) return at;
    } else if (unit < 0x80 ? !isPlain(unit) && unit !== APOSTROPHE && isPlain(before) : EAST_ASIAN_SIGNS.has(unit) && isPlain(before)) {
      return at;
    }
  }
  return end;
}

function isDigit(unit: number): boolean {
  return unit >= 0x30 && unit <= 0x39;
}

/** White space by any standard, and U+2581, which white space of pieces is written with. */
function maybeSpace(unit: number): boolean {
  if (unit < 0x80) return unit <= 0x20;
  return unit === 0x2581 || unit === 0x85 || unit === 0x180e || /\s/.test(String.fromCharCode(unit));
}

/** Letters and digits of which no standard says anything else: ASCII, kana, Han, Hangul. */
function isPlain(unit: number): boolean {
  if (unit < 0x80) return isDigit(unit) || (unit >= 0x41 && unit <= 0x5a) || (unit >= 0x61 && unit <= 0x7a);
  return (
    (unit >= 0x3041 && unit <= 0x3096) ||
    (unit >= 0x30a1 && unit <= 0x30fa) ||
    (unit >= 0x4e00 && unit <= 0x9fa5) ||
    (unit >= 0xac00 && unit <= 0xd7a3)
  );
}
