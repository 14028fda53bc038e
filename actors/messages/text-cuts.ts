/**
 * Where a text may be cut so that most tokenizers give its parts, one after the other, the ids of the whole (tokenizer/encode/cuts.ts says
 * which, and why). A cut is safe
 *   - before a space (U+0020) behind a character that is no white space, and
 *   - behind a plain letter or digit, before a line end, a sign (but no apostrophe) or a mark of East Asian punctuation, and
 *   - behind a plain letter, before a digit (base64).
 * Pure; used where texts are encoded, and where those that nobody can encode are found before (text-bounds.ts).
 */

/** East Asian comma, full stop, exclamation mark, colon, semicolon, question mark. */
const EAST_ASIAN_SIGNS: ReadonlySet<number> = new Set([0x3001, 0x3002, 0xff01, 0xff0c, 0xff1a, 0xff1b, 0xff1f]);
const APOSTROPHE = 0x27;

/** The first place from `from` on where a text may be cut; when there is none before `until`, that or the end. A few ns a character. */
export function nextCut(text: string, from: number, until: number): number {
  const end = Math.min(text.length, until);
  const first = Math.max(1, from);
  for (let at = first, before = 0, unit = text.charCodeAt(first - 1); at < end; at++) {
    before = unit;
    unit = text.charCodeAt(at);
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
