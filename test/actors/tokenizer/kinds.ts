/** Tokenizers of published shapes around the demo model's vocabulary: what a test needs of a tokenizer is how it cuts text, not its words. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { demoPath } from './harness.js';

export type Json = Record<string, unknown>;

export const demoJson = JSON.parse(readFileSync(join(demoPath, 'tokenizer.json'), 'utf8')) as Json & { model: Json };

const bytes: Json = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };

export function split(regex: string): Json {
  return { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false };
}

/** The demo model's tokenizer with other steps before the bytes. */
export function tokenizerWith(steps: readonly Json[], other: Json = {}): Json {
  return { ...demoJson, pre_tokenizer: { type: 'Sequence', pretokenizers: [...steps, bytes] }, ...other };
}

const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const spaces = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const upper = String.raw`\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}`;
const lower = String.raw`\p{Ll}\p{Lm}\p{Lo}\p{M}`;

/** As the files of these models spell them. */
export const patterns = {
  llama3: String.raw`${contractions}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|${spaces}`,
  qwen2: String.raw`${contractions}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|${spaces}`,
  qwen35: String.raw`${contractions}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${spaces}`,
  gpt4o: String.raw`[^\r\n\p{L}\p{N}]?[${upper}]*[${lower}]+${contractions}?|[^\r\n\p{L}\p{N}]?[${upper}]+[${lower}]*${contractions}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${spaces}`,
  tekken: String.raw`[^\r\n\p{L}\p{N}]?[${upper}]*[${lower}]+|[^\r\n\p{L}\p{N}]?[${upper}]+[${lower}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${spaces}`,
  kimi: String.raw`[\p{Han}]+|[^\r\n\p{L}\p{N}]?[${upper}&&[^\p{Han}]]*[${lower}&&[^\p{Han}]]+${contractions}?|[^\r\n\p{L}\p{N}]?[${upper}&&[^\p{Han}]]+[${lower}&&[^\p{Han}]]*${contractions}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|${spaces}`,
  deepseek: [
    String.raw`\p{N}{1,3}`,
    '[一-龥぀-ゟ゠-ヿ]+',
    String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${'`'}{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${spaces}`,
  ],
};

const gpt2: Json = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };

/** Those whose text may be cut. */
export const cutKinds: Readonly<Record<string, Json>> = {
  'Llama 3': tokenizerWith([split(patterns.llama3)]),
  'Qwen 2': tokenizerWith([split(patterns.qwen2)], { normalizer: { type: 'NFC' } }),
  'Qwen 3.5': tokenizerWith([split(patterns.qwen35)], { normalizer: { type: 'NFC' } }),
  'GPT-4o': tokenizerWith([split(patterns.gpt4o)]),
  Tekken: tokenizerWith([split(patterns.tekken)]),
  'Kimi K2': tokenizerWith([split(patterns.kimi)]),
  'DeepSeek V3': tokenizerWith(patterns.deepseek.map(split)),
  'GPT-2': { ...demoJson, pre_tokenizer: gpt2 },
  SmolLM: { ...demoJson, pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, gpt2] } },
};

const odd = [
  ...' \n\r\t\f/!"\'-_,.aZ1½٣éßſǅʰ²\u0085\u00a0\u1680\u180e\u2009\u2028\u200b\u200d\u202f\u3000\ufeff\u2581\u0301\u0338\u3099\ufffd',
  ...'你日か가각。，！、？😀\u{10fffd}\u{e0100}',
];
const runs = [
  "'s",
  "'LL",
  'e\u0301',
  '\r\n',
  '\n\n',
  '  ',
  ' \n ',
  ' the story',
  'Hello',
  '12345',
  '你好，世界。',
  '...\n',
  '/\n',
  '=\u0338',
];

/** Text of all that cuts, normalizers and patterns treat each in its own way. */
export const oddText = fc
  .array(fc.oneof(fc.constantFrom(...odd), fc.constantFrom(...runs), fc.string({ unit: 'grapheme', maxLength: 3 })), { maxLength: 30 })
  .map((parts) => parts.join(''));
