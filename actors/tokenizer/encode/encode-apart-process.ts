/**
 * The process of encode-apart.ts: encodes what it is sent, one text after the other, until it is killed or dies of one. Reads the same
 * tokenizer.json as the tokenizer thread, and rewrites it in the same way, so its ids are the same.
 */
import { createHash } from 'node:crypto';
import { readModelFile } from '../model/model-files.js';
import { parseTokenizerJson, plainTokenizerJson } from '../model/tokenizer-json.js';
import type { ApartText, ApartTokenizer, FromApart } from './encode-apart.js';
import { encode, type LibraryTokenizer, readTokenizer } from './library.js';

/** Ids of one message: the other side takes each in a turn of its event loop. */
const PART_IDS = 65_536;

function send(message: FromApart): void {
  process.send?.(message);
}

function tokenizerOf({ model, digest, nonce, keepNormalizer }: ApartTokenizer): LibraryTokenizer {
  const text = readModelFile(model, 'tokenizer.json') ?? '';
  if (createHash('sha256').update(text).digest('hex') !== digest) throw new Error(`the tokenizer of ${model} has changed`);
  return readTokenizer(plainTokenizerJson(parseTokenizerJson(text), { nonce, keepNormalizer }).text);
}

async function answer(tokenizer: LibraryTokenizer, text: string): Promise<void> {
  const ids = Int32Array.from(await encode(tokenizer, text, false));
  for (let first = 0; first === 0 || first < ids.length; first += PART_IDS) {
    send({ ids: ids.slice(first, first + PART_IDS), last: first + PART_IDS >= ids.length });
  }
}

// Its channel tells when to end. A Ctrl-C in the terminal of the daemon is not for it, since requests that run are still answered.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => {});
// A thread may be in a text that never ends, and `process.exit` would wait for it.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

process.once('message', (message) => {
  const tokenizer = tokenizerOf(message as ApartTokenizer); // proof: EncodeApart sends one of these, then texts
  process.on('message', ({ text }: ApartText) => void answer(tokenizer, text));
  send('ready');
});
