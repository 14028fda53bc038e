/**
 * Log-probabilities in the shapes of OpenAI's chat and text completions and of vLLM's prompt_logprobs. The lists stay packed until they
 * are written.
 */
import { packedList } from '../packed-list.js';
import type { LogprobEntry, LogprobSource } from './logprob-records.js';

export interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[] | null;
  readonly top_logprobs: { readonly token: string; readonly logprob: number; readonly bytes: number[] | null }[];
}

/** Characters of JSON that a word of a record becomes, roughly: in lists of entries, of texts to numbers, and of single values. */
const CHARS_A_WORD = { chat: 36, prompt: 33, tops: 12 } as const;
const VALUE_CHARS = 12;

/** JSON has no infinity; vLLM writes this for a token that cannot be. */
const lowest = -9999;
const finite = (logprob: number): number => (Number.isFinite(logprob) ? logprob : lowest);

function chatLogprob(entry: LogprobEntry): ChatLogprob {
  return {
    token: entry.token,
    logprob: finite(entry.logprob),
    bytes: [...entry.bytes],
    top_logprobs: entry.top.map((t) => ({ token: t.token, logprob: finite(t.logprob), bytes: [...t.bytes] })),
  };
}

export interface CompletionLogprobs {
  readonly text_offset: number[];
  readonly token_logprobs: (number | null)[];
  readonly tokens: string[];
  readonly top_logprobs: (Record<string, number> | null)[];
}

/** `content` of a chat's log-probabilities. */
export function chatLogprobs(sources: readonly LogprobSource[]): ChatLogprob[] {
  return listOf(sources, CHARS_A_WORD.chat * wordsOf(sources), chatLogprob);
}

/** One entry per token; one without a log-probability is the first of a prompt. `from`: code points before the first. */
export function completionLogprobs(sources: readonly LogprobSource[], from: number): CompletionLogprobs {
  const chars = VALUE_CHARS * sizeOf(sources);
  const known = (entry: LogprobEntry): boolean => !Number.isNaN(entry.logprob);
  return {
    text_offset: packedList({ length: sizeOf(sources), chars, iterate: () => offsets(sources, from) }),
    token_logprobs: listOf(sources, chars, (entry) => (known(entry) ? finite(entry.logprob) : null)),
    tokens: listOf(sources, chars, (entry) => entry.token),
    top_logprobs: listOf(sources, CHARS_A_WORD.tops * wordsOf(sources), (entry) => (known(entry) ? topMap(entry) : null)),
  };
}

/** Code points of all tokens. */
export function codePointsOf(sources: readonly LogprobSource[]): number {
  let sum = 0;
  for (const source of sources) for (const entry of source) sum += codePoints(entry.token);
  return sum;
}

/** One element per prompt token: null for the first, else token id -> entry. */
export function promptLogprobs(sources: readonly LogprobSource[]) {
  return listOf(sources, CHARS_A_WORD.prompt * wordsOf(sources), promptRow);
}

function promptRow(entry: LogprobEntry) {
  if (Number.isNaN(entry.logprob)) return null;
  const row = (e: { readonly token: string; readonly logprob: number }, rank: number) => ({
    logprob: finite(e.logprob),
    rank,
    decoded_token: e.token,
  });
  const pairs = entry.top.map((t, i) => [String(t.id), row(t, i + 1)] as const);
  return Object.fromEntries([...pairs, [String(entry.id), row(entry, entry.rank)] as const]);
}

/** The alternatives, and the token itself when it is not among them. The first of two equal texts is the better one and stays. */
function topMap(entry: LogprobEntry): Record<string, number> {
  const map = new Map<string, number>();
  for (const t of entry.top) if (!map.has(t.token)) map.set(t.token, finite(t.logprob));
  if (!map.has(entry.token)) map.set(entry.token, finite(entry.logprob));
  return Object.fromEntries(map);
}

function codePoints(text: string): number {
  let n = 0;
  for (const _ of text) n++;
  return n;
}

function* offsets(sources: readonly LogprobSource[], from: number): Generator<number> {
  let offset = from;
  for (const source of sources) {
    for (const entry of source) {
      yield offset;
      offset += codePoints(entry.token);
    }
  }
}

function listOf<T>(sources: readonly LogprobSource[], chars: number, shape: (entry: LogprobEntry) => T): T[] {
  return packedList({
    length: sizeOf(sources),
    chars,
    *iterate() {
      for (const source of sources) for (const entry of source) yield shape(entry);
    },
  });
}

const sizeOf = (sources: readonly LogprobSource[]): number => sources.reduce((sum, source) => sum + source.size, 0);
const wordsOf = (sources: readonly LogprobSource[]): number => sources.reduce((sum, source) => sum + source.words, 0);
