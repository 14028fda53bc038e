/**
 * The tokenizer of a GGUF file, made of its metadata alone, as the tokenizer.json and tokenizer_config.json that the same model has
 * elsewhere. Two kinds: byte-level BPE, whose metadata names the way in which text is cut into words, and sentencepiece by scores.
 * A new way to cut is an entry of `families`. Called by model-files.ts at start-up.
 */
import { type GgufHead, ggufText } from '../../../config/gguf/read.js';
import { deepseekV3, gpt4o, llama3, qwen2, tekken } from './split-patterns.js';

type Json = Record<string, unknown>;

/** The lists of the metadata that this file reads. */
export const tokenizerLists: ReadonlySet<string> = new Set(
  ['tokens', 'token_type', 'merges', 'scores'].map((name) => `tokenizer.ggml.${name}`),
);

const tokenType = { normal: 1, unknown: 2, control: 3, user: 4, unused: 5 } as const;

/** How a family of byte-level vocabularies cuts text into words. */
interface Family {
  /** Cuts in order, before bytes become characters; empty: ByteLevel's own pattern, GPT-2's. */
  readonly cuts: readonly Json[];
  readonly gpt2?: boolean;
  readonly ignoreMerges?: boolean;
  readonly addBos?: boolean;
}

const split = (pattern: string): Json => ({ type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false });
const digits: Json = { type: 'Digits', individual_digits: true };

const llama3Family: Family = { cuts: [split(llama3)], ignoreMerges: true, addBos: true };
const qwen2Family: Family = { cuts: [split(qwen2)] };
const digitsFamily: Family = { cuts: [digits], gpt2: true };
const gpt2Family: Family = { cuts: [], gpt2: true };
/** Files older than the key: what they meant is not known, so the cuts are those of most. */
const defaultFamily: Family = { cuts: [split(String.raw`[\p{P}\$\+<=>\^~\|]+`), digits], gpt2: true };

const families: ReadonlyMap<string, Family> = new Map([
  ...['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'pixtral', 'lfm2'].map((name) => [name, llama3Family] as const),
  ...['qwen2', 'deepseek-r1-qwen', 'megrez'].map((name) => [name, qwen2Family] as const),
  ['tekken', { cuts: [split(tekken)], ignoreMerges: true, addBos: true }],
  ...['gpt-4o', 'llama4'].map((name) => [name, { cuts: [split(gpt4o)] }] as const),
  ['deepseek-v3', { cuts: deepseekV3.map(split) }],
  ...['smollm', 'starcoder', 'refact', 'command-r'].map((name) => [name, digitsFamily] as const),
  ...['gpt-2', 'phi-2', 'mpt', 'olmo', 'jais'].map((name) => [name, gpt2Family] as const),
  // OLMo 2 cuts as GPT-4 did, which is Llama 3's way; its merges decide.
  ['dbrx', { cuts: [split(llama3)] }],
  ['default', defaultFamily],
]);

interface Tokens {
  readonly texts: readonly string[];
  readonly types: readonly number[];
  readonly head: GgufHead;
}

function strings(head: GgufHead, name: string): readonly string[] {
  const list = head.metadata.get(`tokenizer.ggml.${name}`);
  if (!Array.isArray(list) || !list.every((entry) => typeof entry === 'string'))
    throw new Error(`its metadata lacks the list tokenizer.ggml.${name}`);
  return list as readonly string[]; // proof: just checked
}

function numbers(head: GgufHead, name: string): readonly number[] | null {
  const list = head.metadata.get(`tokenizer.ggml.${name}`);
  return Array.isArray(list) && list.every((entry) => typeof entry === 'number') ? (list as readonly number[]) : null; // proof: just checked
}

function idOf({ head, texts }: Tokens, name: string, fallback: number | null = null): number | null {
  const id = head.metadata.get(`tokenizer.ggml.${name}_token_id`) ?? fallback;
  return typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < texts.length ? id : null;
}

function flag(head: GgufHead, name: string, fallback: boolean): boolean {
  const value = head.metadata.get(`tokenizer.ggml.${name}`);
  return typeof value === 'boolean' ? value : fallback;
}

function tokensOf(head: GgufHead): Tokens {
  const texts = strings(head, 'tokens');
  const types = numbers(head, 'token_type') ?? texts.map(() => tokenType.normal);
  if (texts.length === 0 || types.length !== texts.length) throw new Error('its metadata lists no tokens, or not the type of each');
  return { texts, types, head };
}

/** Later tokens of the same text have no way to be written, and would only hide the first. */
function vocabulary({ texts }: Tokens): Map<string, number> {
  const vocab = new Map<string, number>();
  for (const [id, text] of texts.entries()) {
    if (!vocab.has(text)) vocab.set(text, id);
    else vocab.set(`\u{10FFFD}${id}`, id);
  }
  return vocab;
}

/** Those of Phi-3 that do not take the white space behind them, as all others of its sentencepiece vocabulary do; no key says so. */
const keepsSpace: ReadonlySet<string> = new Set(['<unk>', '<s>', '<|endoftext|>']);

function addedTokens({ texts, types, head }: Tokens, special: readonly number[]): Json[] {
  const plain = { single_word: false, lstrip: false, normalized: false };
  const strips = ggufText(head, 'general.architecture') === 'phi3' && ggufText(head, 'tokenizer.ggml.model') === 'llama';
  return texts.flatMap((content, id) => {
    const type = types[id] ?? tokenType.normal;
    if (content === '' || !(special.includes(type) || type === tokenType.user)) return [];
    return [{ id, content, ...plain, rstrip: strips && !keepsSpace.has(content), special: type !== tokenType.user }];
  });
}

/** What is put around a raw prompt. */
function postProcessor(tokens: Tokens, bos: number | null, eos: number | null): Json | null {
  const around = { bos, eos };
  const special: Json = {};
  const one = (id: number | null): Json[] => {
    if (id === null) return [];
    const text = tokens.texts[id] ?? '';
    special[text] = { id: text, ids: [id], tokens: [text] };
    return [{ SpecialToken: { id: text, type_id: 0 } }];
  };
  const before = one(around.bos);
  const after = one(around.eos);
  if (before.length + after.length === 0) return null;
  const single = [...before, { Sequence: { id: 'A', type_id: 0 } }, ...after];
  const pair = [...single, ...before, { Sequence: { id: 'B', type_id: 1 } }, ...after];
  return { type: 'TemplateProcessing', single, pair, special_tokens: special };
}

const bpe = { type: 'BPE', dropout: null, continuing_subword_prefix: null, end_of_word_suffix: null };

function byteLevel(tokens: Tokens): Json {
  const { head } = tokens;
  const name = ggufText(head, 'tokenizer.ggml.pre') ?? 'default';
  const family = families.get(name);
  if (family === undefined)
    throw new Error(
      `it cuts text in the way ${JSON.stringify(name.slice(0, 80))}, which is not supported; inferd knows ${[...families.keys()].join(', ')}`,
    );
  const bytes = (useRegex: boolean): Json => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: useRegex });
  const last = bytes(family.gpt2 === true);
  const bos = flag(head, 'add_bos_token', family.addBos === true) ? idOf(tokens, 'bos') : null;
  const eos = flag(head, 'add_eos_token', false) ? idOf(tokens, 'eos') : null;
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedTokens(tokens, [tokenType.control]),
    normalizer: null,
    pre_tokenizer: family.cuts.length === 0 ? last : { type: 'Sequence', pretokenizers: [...family.cuts, last] },
    post_processor: postProcessor(tokens, bos, eos),
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      ...bpe,
      unk_token: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: family.ignoreMerges === true,
      vocab: Object.fromEntries(vocabulary(tokens)),
      merges: mergesOf(strings(head, 'merges'), vocabulary(tokens)),
    },
  };
}

/** Pairs "a b" whose parts and whole are tokens; a space at the start belongs to the first part. */
function mergesOf(lines: readonly string[], vocab: ReadonlyMap<string, number>): [string, string][] {
  const merges: [string, string][] = [];
  for (const line of lines) {
    const at = line.indexOf(' ', 1);
    const left = line.slice(0, at);
    const right = line.slice(at + 1);
    if (at > 0 && vocab.has(left) && vocab.has(right) && vocab.has(left + right)) merges.push([left, right]);
  }
  return merges;
}

/** Longest piece that is looked at for pairs: pieces come from strangers, and the pairs of one grow with it. */
const maxPieceChars = 512;

/** Sentencepiece joins the neighbours whose joined text scores highest: pairs in the order of the score of what they make. */
function mergesByScore({ texts, types, head }: Tokens, vocab: ReadonlyMap<string, number>): [string, string][] {
  const scores = numbers(head, 'scores') ?? [];
  const joined: { readonly score: number; readonly id: number; readonly pair: [string, string] }[] = [];
  for (const [id, text] of texts.entries()) {
    const type = types[id] ?? 0;
    if (
      vocab.get(text) !== id ||
      text.length > maxPieceChars ||
      !(type === tokenType.normal || type === tokenType.user || type === tokenType.unused)
    )
      continue;
    for (let at = 1; at < text.length; at++) {
      const left = text.slice(0, at);
      const right = text.slice(at);
      if (vocab.has(left) && vocab.has(right)) joined.push({ score: scores[id] ?? 0, id, pair: [left, right] });
    }
  }
  joined.sort((a, b) => b.score - a.score || a.id - b.id);
  return joined.map(({ pair }) => pair);
}

function sentencePiece(tokens: Tokens): Json {
  const { head } = tokens;
  const vocab = vocabulary(tokens);
  const prefix = flag(head, 'add_space_prefix', true);
  const unknown = idOf(tokens, 'unknown', 0);
  const bos = flag(head, 'add_bos_token', true) ? idOf(tokens, 'bos', 1) : null;
  const eos = flag(head, 'add_eos_token', false) ? idOf(tokens, 'eos', 2) : null;
  const space = '\u2581';
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: space };
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedTokens(tokens, [tokenType.control, tokenType.unknown]),
    normalizer: { type: 'Sequence', normalizers: prefix ? [{ type: 'Prepend', prepend: space }, replace] : [replace] },
    pre_tokenizer: null,
    post_processor: postProcessor(tokens, bos, eos),
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: space }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(prefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      ...bpe,
      unk_token: unknown === null ? null : tokens.texts[unknown],
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab: Object.fromEntries(vocab),
      merges: mergesByScore(tokens, vocab),
    },
  };
}

/** @throws Error with half a sentence when the tokenizer is of a kind that is not supported. */
export function ggufTokenizerJson(head: GgufHead): string {
  const given = ggufText(head, 'tokenizer.huggingface.json');
  if (given !== null) return given;
  const kind = ggufText(head, 'tokenizer.ggml.model');
  if (kind === 'gpt2') return JSON.stringify(byteLevel(tokensOf(head)));
  if (kind === 'llama') return JSON.stringify(sentencePiece(tokensOf(head)));
  throw new Error(`its tokenizer is of the kind ${JSON.stringify(String(kind).slice(0, 80))}; inferd knows gpt2 and llama`);
}

const templateKey = 'tokenizer.chat_template';

/** Names of special tokens, and chat templates. */
export function ggufTokenizerConfig(head: GgufHead): string {
  const texts = head.metadata.get('tokenizer.ggml.tokens');
  const text = (name: string): string | undefined => {
    const id = head.metadata.get(`tokenizer.ggml.${name}_token_id`);
    const found = Array.isArray(texts) && typeof id === 'number' ? (texts[id] as unknown) : undefined;
    return typeof found === 'string' ? found : undefined;
  };
  const templates = [...head.metadata].flatMap(([key, template]) => {
    const name = key === templateKey ? 'default' : key.startsWith(`${templateKey}.`) ? key.slice(templateKey.length + 1) : null;
    return name === null || typeof template !== 'string' ? [] : [{ name, template }];
  });
  return JSON.stringify({
    bos_token: text('bos'),
    eos_token: text('eos'),
    unk_token: text('unknown'),
    pad_token: text('padding'),
    chat_template: templates.length === 0 ? undefined : templates,
  });
}
