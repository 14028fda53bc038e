/**
 * The Rust library `tokenizers`; this is the only file that imports it. Used by vocab.ts and by encode-apart-process.ts.
 *
 * It finds the words of a text with Oniguruma, which gives up a match after 10,000,000 retries. The library makes a panic of that inside
 * a task of the thread pool, where nothing can catch it: the process ends. And nothing can stop a task that has begun. So no text may go
 * to `encode` in the daemon's own process unless it is proven to be done soon and far from that limit (library-limits.ts).
 */
import { Tokenizer } from 'tokenizers';

export type LibraryTokenizer = Tokenizer;

/** Retries in one match at which Oniguruma gives up. */
export const RETRY_LIMIT = 10_000_000;

/** @param json text of a tokenizer.json. Blocks for about a second with a large vocabulary. @throws Error when the library cannot read it. */
export function readTokenizer(json: string): LibraryTokenizer {
  return Tokenizer.fromString(json);
}

/** Ids of a well-formed text, on the thread pool; about 1.5 us a character. */
export async function encode(tokenizer: LibraryTokenizer, text: string, addSpecialTokens: boolean): Promise<number[]> {
  return (await tokenizer.encode(text, null, { addSpecialTokens })).getIds();
}
