/**
 * Prompts of token ids as texts, for servers that take no ids (chat). A text seldom has the tokens it was made of: it is encoded again,
 * filled up or cut, up to ten rounds as ATOM does, and the length it has in the end is the one reported. Where the server has no tokenizer
 * to ask, the text is common words, about a token each.
 */
import type { Random } from '../random.js';
import type { BenchRequest } from '../request.js';
import { mapSome, type Tokenizer } from './dataset.js';

const rounds = 10;

export interface TextOptions {
  readonly tokenizer: Tokenizer | null;
  readonly random: Random;
  readonly vocabSize: number;
}

export function asTexts(requests: readonly BenchRequest[], options: TextOptions): Promise<readonly BenchRequest[]> {
  const { tokenizer } = options;
  return mapSome(requests, async (request) => {
    const { prompt } = request;
    if (typeof prompt === 'string') return request;
    if (tokenizer === null) return { ...request, prompt: wordsOf(prompt) };
    return { ...request, ...(await textOfLength(prompt, tokenizer, options)) };
  });
}

async function textOfLength(
  wanted: readonly number[],
  tokenizer: Tokenizer,
  { random, vocabSize }: TextOptions,
): Promise<{ prompt: string; inputLen: number }> {
  let ids = wanted;
  let best = { prompt: '', inputLen: 0 };
  for (let round = 0; round < rounds; round++) {
    const prompt = await tokenizer.decode(ids);
    const encoded = await tokenizer.encode(prompt);
    const off = encoded.length - wanted.length;
    if (round === 0 || Math.abs(off) < Math.abs(best.inputLen - wanted.length)) best = { prompt, inputLen: encoded.length };
    if (off === 0) break;
    ids = off > 0 ? encoded.slice(0, wanted.length) : [...encoded, ...Array.from({ length: -off }, () => random.int(0, vocabSize - 1))];
  }
  return best;
}

const words = 'the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were'.split(
  ' ',
);

const wordsOf = (ids: readonly number[]): string => ids.map((id) => words[id % words.length]).join(' ');
