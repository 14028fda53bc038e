/**
 * Table from token id to the bytes it stands for, built once at start-up from tokenizer.json. Read by decode/detokenizer.ts for each token
 * and by decode/token-names.ts.
 *
 * Two families of vocabularies:
 *   byte level    every byte is one printable character (the map of GPT-2): printable Latin-1 stands for itself, the other 68 bytes
 *                 for U+0100 .. U+0143;
 *   pieces        sentencepiece: U+2581 is a space, `<0xNN>` is the byte NN.
 * Added tokens stand for their own text. Most tokens are whole UTF-8 and are kept as strings; only the others keep bytes.
 */
import { isUtf8 } from 'node:buffer';
import { isObject, type TokenizerJson } from './tokenizer-json.js';

/** How token strings turn into bytes. */
export interface DecoderRules {
  readonly byteLevel: boolean;
  /** Character that stands for a space in a vocabulary of pieces. */
  readonly space: string;
  readonly byteFallback: boolean;
  /** A text decoded as a whole loses one leading space, which its encoder had put there. */
  readonly stripsFirstSpace: boolean;
}

/** @throws Error with one sentence when the decoder is of no known family. */
function decoderRules(json: TokenizerJson): DecoderRules {
  const rules = { byteLevel: false, space: '', byteFallback: false, stripsFirstSpace: false };
  const decoder = json.raw['decoder'] ?? json.raw['pre_tokenizer'];
  for (const part of flatten(decoder, ['decoders', 'pretokenizers'])) {
    if (part['type'] === 'ByteLevel') rules.byteLevel = true;
    else if (part['type'] === 'ByteFallback') rules.byteFallback = true;
    else if (part['type'] === 'Metaspace') {
      rules.space = typeof part['replacement'] === 'string' ? part['replacement'] : '\u2581';
      rules.stripsFirstSpace = part['prepend_scheme'] !== 'never' && part['add_prefix_space'] !== false;
    } else if (part['type'] === 'Replace' && isObject(part['pattern']) && part['content'] === ' ') {
      if (typeof part['pattern']['String'] === 'string') rules.space = part['pattern']['String'];
    } else if (part['type'] === 'Strip' && part['content'] === ' ' && part['start'] === 1) rules.stripsFirstSpace = true;
  }
  if (!rules.byteLevel && rules.space === '' && !rules.byteFallback) {
    throw new Error('its decoder is neither byte level nor sentencepiece, and no other kind is supported');
  }
  return rules;
}

/** The parts of a component that may be a sequence of components. */
function flatten(component: unknown, lists: readonly string[]): Record<string, unknown>[] {
  if (!isObject(component)) return [];
  for (const name of lists) {
    const list = component[name];
    if (Array.isArray(list)) return list.flatMap((part: unknown) => flatten(part, lists));
  }
  return [component];
}

/** The byte of each character of a byte-level vocabulary, by code unit (< 0x144); -1 where there is none. */
export function byteLevelAlphabet(): Int16Array {
  const byteOf = new Int16Array(0x144).fill(-1);
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    byteOf[printable ? byte : next++] = byte;
  }
  return byteOf;
}

export class TokenTable {
  /** Text of ids whose bytes are whole UTF-8; null where `partialBytes` has them. Ids that name no token are ''. */
  readonly texts: readonly (string | null)[];
  readonly #partial: ReadonlyMap<number, Uint8Array>;
  /** 1 for ids of special tokens (those that skip_special_tokens hides). */
  readonly special: Uint8Array;
  /** Ids of special tokens by their text. */
  readonly specialIds: ReadonlyMap<string, number>;
  readonly rules: DecoderRules;

  /** @param vocabSize rows of the model's output; ids beyond the tokenizer's decode to nothing. */
  constructor(json: TokenizerJson, vocabSize: number) {
    this.rules = decoderRules(json);
    const texts: (string | null)[] = new Array<string | null>(vocabSize).fill('');
    const partial = new Map<number, Uint8Array>();
    this.special = new Uint8Array(vocabSize);
    const specialIds = new Map<string, number>();
    const alphabet = byteLevelAlphabet();
    for (const [token, id] of json.entries) {
      if (id >= vocabSize) continue;
      const bytes = this.rules.byteLevel ? fromByteLevel(token, alphabet) : fromPiece(token, this.rules);
      const whole = typeof bytes === 'string';
      texts[id] = whole ? bytes : null;
      if (!whole) partial.set(id, bytes);
    }
    for (const token of json.addedTokens) {
      if (token.id >= vocabSize) continue;
      texts[token.id] = this.rules.space === '' ? token.content : token.content.replaceAll(this.rules.space, ' ');
      partial.delete(token.id);
      if (!token.special) continue;
      this.special[token.id] = 1;
      specialIds.set(token.content, token.id);
    }
    this.specialIds = specialIds;
    this.texts = texts;
    this.#partial = partial;
  }

  get size(): number {
    return this.texts.length;
  }

  /** Bytes of an id whose text is null. */
  partialBytes(id: number): Uint8Array {
    return this.#partial.get(id) ?? EMPTY;
  }

  /** All bytes of an id. May allocate; not for the token path. */
  bytes(id: number): Uint8Array {
    const text = this.texts[id];
    return text === null ? this.partialBytes(id) : Buffer.from(text ?? '', 'utf8');
  }
}

const EMPTY = new Uint8Array(0);

function fromByteLevel(token: string, alphabet: Int16Array): string | Uint8Array {
  const bytes = Buffer.alloc(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = alphabet[token.charCodeAt(i)] ?? -1;
    // A string with a character outside the alphabet was not made from bytes and stands for itself.
    if (byte < 0) return token;
    bytes[i] = byte;
  }
  return isUtf8(bytes) ? bytes.toString('utf8') : bytes;
}

function fromPiece(token: string, rules: DecoderRules): string | Uint8Array {
  const byte = rules.byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1] : undefined;
  if (byte === undefined) return rules.space === '' ? token : token.replaceAll(rules.space, ' ');
  const code = Number.parseInt(byte, 16);
  return code < 0x80 ? String.fromCharCode(code) : Uint8Array.of(code);
}
