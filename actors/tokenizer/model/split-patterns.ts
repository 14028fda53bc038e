/**
 * The patterns by which published models cut text into words, spelled as in their tokenizer.json. Read by encode/byte-pair.ts, which knows
 * some of them by itself, by encode/cuts.ts and by encode/library-limits.ts.
 *
 * All of them are alike: an alternative is one class of characters repeated, behind at most one other character or one other repeated
 * class. So a start costs a few retries for each character of the stretch it looks at, and the match then takes that stretch: the time
 * grows with the text, and the retries of one match are no more than some times its characters.
 */
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const spaces = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const lower = String.raw`\p{Ll}\p{Lm}\p{Lo}\p{M}`;
const upper = String.raw`\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`;
const before = String.raw`[^\r\n\p{L}\p{N}]?`;
const signs = String.raw` ?[^\s\p{L}\p{N}]+`;

/** Llama 3 (`numbers` of up to three digits), Qwen 2 and 3 (one digit). */
const words = (numbers: string): string => String.raw`${contractions}|${before}\p{L}+|${numbers}|${signs}[\r\n]*|${spaces}`;

/** Words that begin with capitals and go on in small letters. */
const cased = (numbers: string, capitals: string, small: string, ending: string, lineEnds: string): string =>
  `${before}${capitals}*${small}+${ending}|${before}${capitals}+${small}*${ending}|${numbers}|${signs}${lineEnds}|${spaces}`;

const digit = String.raw`\p{N}`;
const threeDigits = String.raw`\p{N}{1,3}`;

export const llama3 = words(threeDigits);
export const qwen2 = words(digit);
/** GPT-4o, gpt-oss, Llama 4. */
export const gpt4o = cased(threeDigits, `[${upper}]`, `[${lower}]`, `${contractions}?`, String.raw`[\r\n/]*`);
/** Mistral's Tekken. */
export const tekken = cased(digit, `[${upper}]`, `[${lower}]`, '', String.raw`[\r\n/]*`);
/** DeepSeek V3, one after the other: the last is of whole texts. */
export const deepseekV3 = [
  threeDigits,
  '[一-龥぀-ゟ゠-ヿ]+',
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|' +
    String.raw`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${spaces}`,
] as const;

/** Patterns of whole texts: encode/cuts.ts says where their words end for certain. */
export const wordPatterns: ReadonlySet<string> = new Set([
  llama3,
  qwen2,
  // Qwen 3.5: marks are part of words.
  String.raw`${contractions}|${before}[\p{L}\p{M}]+|${digit}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${spaces}`,
  gpt4o,
  tekken,
  // Kimi K2.
  String.raw`[\p{Han}]+|` +
    cased(threeDigits, `[${upper}&&[^\\p{Han}]]`, `[${lower}&&[^\\p{Han}]]`, `${contractions}?`, String.raw`[\r\n]*`),
  deepseekV3[2],
]);

/** Patterns that stand before one of those and only take runs of one class out of the text: DeepSeek V3. */
export const runPatterns: ReadonlySet<string> = new Set([digit, deepseekV3[0], deepseekV3[1]]);
