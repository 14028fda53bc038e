/** Log-probability records as objects, for tests. */
import { int32Of } from '../../../actors/messages/codec.js';
import { LOGPROB, LOGPROB_TOP, recordWords, recordWordsAt } from '../../../actors/messages/logprobs.js';

export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
  readonly rank: number;
  /** (id, logprob) pairs. */
  readonly top: readonly (readonly [number, number])[];
}

export function recordOf({ token, logprob, rank, top }: TokenLogprob): Int32Array {
  const words = new Int32Array(recordWords(top.length));
  const floats = new Float32Array(words.buffer);
  words[LOGPROB.token] = token;
  floats[LOGPROB.logprob] = logprob;
  words[LOGPROB.rank] = rank;
  words[LOGPROB.numTop] = top.length;
  top.forEach(([id, value], i) => {
    words[LOGPROB.top + i * LOGPROB_TOP.words + LOGPROB_TOP.id] = id;
    floats[LOGPROB.top + i * LOGPROB_TOP.words + LOGPROB_TOP.logprob] = value;
  });
  return words;
}

export function recordsOf(entries: readonly TokenLogprob[]): Int32Array {
  return Int32Array.from(entries.flatMap((entry) => [...recordOf(entry)]));
}

/** The entries of whole records; logprobs as float32 holds them. */
export function readRecords(bytes: Uint8Array): TokenLogprob[] {
  const words = int32Of(bytes);
  const floats = new Float32Array(words.buffer, words.byteOffset, words.length);
  const entries: TokenLogprob[] = [];
  for (let at = 0; at < words.length; at += recordWordsAt(words, at)) {
    const top = Array.from({ length: words[at + LOGPROB.numTop] ?? 0 }, (_, i) => {
      const pair = at + LOGPROB.top + i * LOGPROB_TOP.words;
      return [words[pair + LOGPROB_TOP.id] ?? -1, floats[pair + LOGPROB_TOP.logprob] ?? 0] as const;
    });
    entries.push({
      token: words[at + LOGPROB.token] ?? -1,
      logprob: floats[at + LOGPROB.logprob] ?? 0,
      rank: words[at + LOGPROB.rank] ?? 0,
      top,
    });
  }
  return entries;
}
