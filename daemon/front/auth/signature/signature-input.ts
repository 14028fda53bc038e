/**
 * The headers Signature-Input and Signature (RFC 9421) with one signature each. Of structured fields (RFC 8941) exactly what these need, and
 * stricter where that syntax is lax: of names that stand twice it lets the last one count, here they are refused, because whoever made the
 * signature may have counted the first. Pure.
 */
import { paramsText, type SignatureParams } from '../../../../rpc/signature/base.js';

export interface SignatureInput {
  readonly label: string;
  readonly components: readonly string[];
  readonly params: SignatureParams;
  /** As it is signed. */
  readonly written: string;
}

/** Why a header is refused, a sentence. */
export class SignatureFault extends Error {}

const MAX_COMPONENTS = 32;
const MAX_PARAMS = 16;

/** One token at a time from a text; the patterns are sticky. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The match at this place, or null; then the place stays. */
  take(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) return null;
    this.#at += found.length;
    return found;
  }

  get done(): boolean {
    return this.#at === this.#text.length;
  }
}

const KEY = /[a-z*][a-z0-9_.*-]*/y;
const STRING = /"(?:[ !#-[\]-~]|\\["\\])*"/y;
const INTEGER = /-?\d{1,15}(?![\d.])/y;
const unquoted = (text: string): string => text.slice(1, -1).replace(/\\(.)/g, '$1');

/** @throws SignatureFault */
export function parseSignatureInput(text: string): SignatureInput {
  const reader = new Reader(text.trim());
  const label = reader.take(KEY);
  if (label === null || reader.take(/=\( */y) === null) throw malformed();
  const components: string[] = [];
  while (reader.take(/\)/y) === null) {
    const component = reader.take(STRING);
    if (component === null || components.length === MAX_COMPONENTS) throw malformed();
    components.push(unquoted(component));
    // What may follow a name of a component changes its value (;sf, ;bs, ;req): none of that is known here.
    if (reader.take(/ +|(?=\))/y) === null) throw malformed();
  }
  const params: (readonly [string, string | number])[] = [];
  while (reader.take(/; */y) !== null) {
    const name = reader.take(KEY);
    if (name === null || reader.take(/=/y) === null || params.length === MAX_PARAMS) throw malformed();
    const value = reader.take(STRING) ?? reader.take(INTEGER);
    if (value === null) throw malformed();
    params.push([name, value.startsWith('"') ? unquoted(value) : Number(value)]);
  }
  if (!reader.done) throw new SignatureFault('Signature-Input must hold one signature, and nothing else.');
  if (new Set(components).size < components.length) throw new SignatureFault('Signature-Input names a component twice.');
  if (new Set(params.map(([name]) => name)).size < params.length) throw new SignatureFault('Signature-Input has a parameter twice.');
  return { label, components, params, written: paramsText(components, params) };
}

/** The bytes behind the label. @throws SignatureFault */
export function parseSignature(text: string, label: string): Buffer {
  const [, name, base64 = ''] = /^([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):$/.exec(text.trim()) ?? [];
  if (name === undefined) throw new SignatureFault('Signature must hold one signature, as in sig1=:…:.');
  if (name !== label) throw new SignatureFault('Signature and Signature-Input must have the same label.');
  return Buffer.from(base64, 'base64');
}

const malformed = (): SignatureFault => new SignatureFault('Signature-Input cannot be read.');
