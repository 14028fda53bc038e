/**
 * The model's tokenizer in memory: plain-text encoding by the library (library-encoder.ts), or at once where the text is short and of the
 * common kind (byte-pair.ts), the cuts at control tokens, the special tokens that surround a raw prompt, and the id -> bytes table.
 * Loaded once a tokenizer thread.
 *
 * encode.ts cuts a prompt into control tokens and plain text; no plain text becomes a control token. Text is well-formed from the cut on:
 * a lone surrogate is one U+FFFD, as in stop strings and in answers.
 */
import { createHash, randomUUID } from 'node:crypto';
import { isGguf } from '../../../config/gguf/files.js';
import { type Failure, InferdError } from '../../messages/errors.js';
import type { StretchBound, TextBounds } from '../../messages/text-bounds.js';
import { AddedTokenSplitter, type Segment } from '../model/added-tokens.js';
import { TokenTable } from '../model/byte-decoder.js';
import { modelFilePath, readModelFile } from '../model/model-files.js';
import { type AddedToken, isGuarded, parseTokenizerJson, plainTokenizerJson, type TokenizerJson } from '../model/tokenizer-json.js';
import { BytePairEncoder } from './byte-pair.js';
import { canBeCut } from './cuts.js';
import { type ApartTokenizer, EncodeApart } from './encode-apart.js';
import { charsOfAnId } from './least-ids.js';
import { encode, type LibraryTokenizer, readTokenizer } from './library.js';
import { type EncodeOptions, LibraryEncoder } from './library-encoder.js';
import { inProcessChars, normalizedAtOnceChars } from './library-limits.js';
import { MAX_SLICE_BYTES, tooLongAtOnce } from './slices.js';

export type Ids = readonly number[] | Int32Array;

export interface Vocabulary {
  readonly table: TokenTable;
  /** Text of every guarded added token. */
  readonly guarded: readonly string[];
  /** Cuts raw text at control tokens. */
  split(text: string): Segment[];
  /**
   * Ids of the segments, in order; no plain text becomes a control token. Throws where it gives an array, and rejects where a promise:
   * TooManyIds; InferdError cancelled when they are not wanted any more, invalid_params when the tokenizer cannot take the text.
   */
  encode(segments: readonly Segment[], options?: EncodeOptions): Ids | Promise<Ids>;
  /** What is known of the texts that it takes. */
  readonly bounds: TextBounds;
  /** Special tokens that the tokenizer puts before and behind a raw prompt. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  /** Nothing is encoded any more. */
  close(): void;
}

/**
 * Reads `tokenizer.json` of a model folder. Blocks for about 1.5 s with a vocabulary of 128 k tokens.
 * @param vocabSize rows of the model's output: ids are 0 .. vocabSize - 1.
 * @throws Error with one sentence that names the file.
 */
export async function loadVocabulary(folder: string, vocabSize: number): Promise<Vocabulary> {
  const path = modelFilePath(folder, 'tokenizer.json');
  const text = tokenizerText(folder, path);
  try {
    return await buildVocabulary(parseTokenizerJson(text), vocabSize, {
      model: folder,
      digest: createHash('sha256').update(text).digest('hex'),
    });
  } catch (cause) {
    throw new Error(`The tokenizer ${path} cannot be used: ${cause instanceof Error ? cause.message : String(cause)}.`, { cause });
  }
}

function tokenizerText(folder: string, path: string): string {
  let cause: unknown;
  try {
    const text = readModelFile(folder, 'tokenizer.json');
    if (text !== null) return text;
  } catch (error) {
    if (isGguf(folder))
      throw new Error(`The tokenizer of ${folder} cannot be used: ${error instanceof Error ? error.message : String(error)}.`, {
        cause: error,
      });
    cause = error;
  }
  throw new Error(`The model has no tokenizer: ${path} cannot be read. Models need a tokenizer.json in the Hugging Face format.`, {
    cause,
  });
}

async function buildVocabulary(
  json: TokenizerJson,
  vocabSize: number,
  file: { readonly model: string; readonly digest: string },
): Promise<Vocabulary> {
  const guarded = json.addedTokens.filter((t) => isGuarded(t) && t.id < vocabSize);
  const table = new TokenTable(json, vocabSize);
  const bare = bareTokenizer(json);
  const [prefix, suffix] = await surroundingTokens(bare);
  const outside = [...prefix, ...suffix].find((id) => id >= vocabSize);
  if (outside !== undefined) throw new Error(`it puts token ${outside} around prompts, but the model has ${vocabSize} ids only`);
  const control = new Uint8Array(vocabSize);
  for (const token of guarded) if (token.content !== json.model['unk_token']) control[token.id] = 1;
  // A token that is searched in normalized text can only be found there, so then the pieces are normalized before the cut.
  const normalize = guarded.some((t) => t.normalized) ? normalizerOf(json, bare) : null;
  const splitter = new AddedTokenSplitter(guarded, normalize ?? ((text) => text));
  const bytePair = json.addedTokens.every(isGuarded) ? BytePairEncoder.of(json) : null;
  const library = libraryEncoder(json, control, { ...file, nonce: randomUUID(), keepNormalizer: normalize === null });
  // A token that swallows the white space beside it stands for any number of characters.
  const swallows = json.addedTokens.some(({ lstrip, rstrip }) => lstrip || rstrip);

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
  return {
    table,
    guarded: guarded.map((t) => t.content),
    split: (text) => splitter.split(text.toWellFormed()),
    encode: (segments, options = {}) => (bytePair && encodeAtOnce(bytePair, segments)) ?? library.encoder.encode(segments, options),
    bounds: {
      k: 'bounds',
      charsOfAnId: swallows ? Number.POSITIVE_INFINITY : library.charsOfAnId,
      stretch: swallows ? null : stretchBound(guarded, normalize === null ? null : normalizedAtOnceChars(json)),
    },
    prefix,
    suffix,
    close: () => library.apart.close(),
  };
}

interface LibraryParts {
  readonly encoder: LibraryEncoder;
  readonly apart: EncodeApart;
  readonly charsOfAnId: number;
}

/** Changes `json.raw`'s vocabulary in place, so call it last. */
function libraryEncoder(json: TokenizerJson, control: Uint8Array, own: ApartTokenizer): LibraryParts {
  const limits = { inProcessChars: inProcessChars(json), cut: canBeCut(json), charsOfAnId: charsOfAnId(json) };
  const plain = plainTokenizerJson(json, own);
  const tokenizer = readTokenizer(plain.text);
  const markId = tokenizer.tokenToId(plain.mark);
  if (markId === null) throw new Error('it cannot be extended by an added token');
  const moved = movedTokens(json, tokenizer);
  const never = limits.inProcessChars === 0;
  const apart = new EncodeApart(own, never);
  return {
    encoder: new LibraryEncoder({ ...limits, tokenizer: never ? null : tokenizer, apart, mark: plain.mark, markId, moved, control }),
    apart,
    charsOfAnId: limits.charsOfAnId,
  };
}

/** `normalized`: characters that a normalizer takes before the text is cut at control tokens; null where none does. */
function stretchBound(guarded: readonly AddedToken[], normalized: number | null): StretchBound {
  return {
    ...(normalized === null
      ? { bytes: MAX_SLICE_BYTES, units: 0, failure: tooLongAtOnce }
      : { bytes: 0, units: normalized, failure: tooLongToNormalize(normalized) }),
    controlStarts: [...new Set(guarded.map(({ content }) => content.charAt(0)))].join(''),
    longestControl: Math.max(0, ...guarded.map(({ content }) => content.length)),
  };
}

function tooLongToNormalize(most: number): Failure {
  return { kind: 'invalid_params', message: `The tokenizer of this model takes at most ${most} characters at once` };
}

/** Normalizes a text in this thread. @throws InferdError invalid_params for a text that might take long */
function normalizerOf(json: TokenizerJson, bare: LibraryTokenizer): ((text: string) => string) | null {
  const normalizer = bare.getNormalizer();
  if (!normalizer) return null;
  const most = normalizedAtOnceChars(json);
  if (most === 0) throw new Error('its normalizer has a pattern that might never be done with a text');
  return (text) => {
    if (text.length > most) {
      const { kind, message } = tooLongToNormalize(most);
      throw new InferdError(kind, message);
    }
    return normalizer.normalizeString(text);
  };
}

/** Text-like added tokens whose id in the rewritten tokenizer differs: id there -> id in the model. */
function movedTokens(json: TokenizerJson, tokenizer: LibraryTokenizer): ReadonlyMap<number, number> | null {
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
function bareTokenizer(json: TokenizerJson): LibraryTokenizer {
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
  return readTokenizer(JSON.stringify(bare));
}

/** What the post-processor puts around a text, whatever kind of post-processor it is. */
async function surroundingTokens(bare: LibraryTokenizer): Promise<readonly [number[], number[]]> {
  const ids = await encode(bare, 'x', true);
  const at = ids.indexOf(PROBE_ID);
  if (at < 0) throw new Error('its post-processor drops the text');
  return [ids.slice(0, at), ids.slice(ids.lastIndexOf(PROBE_ID) + 1)];
}
