/** Grammars of the addon for tests: vocabularies of byte strings, compiling, masks as sets. */
import { type GrammarLimits, type GrammarMatcher, loadAddon, type NativeError } from '../../../native/index.js';

export const addon = loadAddon();

export const limits: GrammarLimits = {
  maxTextBytes: 1 << 20,
  maxStates: 1 << 18,
  maxMemoryBytes: 1 << 28,
  maxDepth: 256,
  // Far beyond what any of them takes, also where an instrumented addon compiles them: the other limits are what is tried.
  deadlineMs: 60_000,
  extensions: false,
};

/** Number of a vocabulary of byte strings (latin1), with one more token at the end, which ends an answer. */
export function vocabulary(tokens: readonly string[]): number {
  const bytes = tokens.map((token) => Buffer.from(token, 'latin1'));
  const offsets = new Int32Array(tokens.length + 2);
  let at = 0;
  for (const [i, b] of bytes.entries()) {
    at += b.length;
    offsets[i + 1] = at;
  }
  offsets[tokens.length + 1] = at;
  return addon.grammarVocabulary(Buffer.concat(bytes), offsets, Int32Array.of(tokens.length));
}

/** All single bytes. */
export const byteTokens: readonly string[] = Array.from({ length: 256 }, (_, b) => String.fromCharCode(b));

/** A matcher of a grammar, which is released when `body` is done. */
export async function withMatcher<T>(
  vocabularyNumber: number,
  text: string,
  body: (matcher: GrammarMatcher) => T,
  more: Partial<GrammarLimits> = {},
): Promise<T> {
  const grammar = await addon.compileGrammar(vocabularyNumber, text, { ...limits, ...more });
  try {
    return body(addon.createGrammarMatcher(grammar));
  } finally {
    addon.releaseGrammar(grammar);
  }
}

/** Whether what went wrong is that a text has too many readings, with which a matcher gives up: grammars that call themselves twice have. */
export const tooAmbiguous = (error: unknown): boolean => (error as Partial<NativeError>).message?.includes('in too many ways') === true;

/** The tokens of a mask. */
export function allowed(mask: Uint32Array): number[] {
  const out: number[] = [];
  for (const [w, word] of mask.entries()) for (let b = 0; b < 32; b++) if ((word >>> b) & 1) out.push(w * 32 + b);
  return out;
}

/** The sentence with which a grammar is refused, and its code. */
export async function refusal(text: string, more: Partial<GrammarLimits> = {}): Promise<{ code: string; message: string }> {
  try {
    addon.releaseGrammar(await addon.compileGrammar(vocabulary(byteTokens), text, { ...limits, ...more }));
  } catch (error) {
    const { code, message } = error as NativeError;
    return { code, message };
  }
  throw new Error(`The grammar was not refused: ${text.slice(0, 200)}`);
}
