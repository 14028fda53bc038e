/** What a dataset is: a function from a seed and some lengths to requests. What it needs of the server is its tokenizer. */
import type { Random } from '../random.js';
import type { BenchRequest } from '../request.js';

/** The server's, asked over the network; without special tokens. */
export interface Tokenizer {
  encode(text: string): Promise<readonly number[]>;
  decode(ids: readonly number[]): Promise<string>;
}

/** Lengths in tokens. */
export interface DatasetOptions {
  readonly randomInputLen: number;
  readonly randomOutputLen: number;
  /** Smallest length as a share of the largest, from 0 to 1. */
  readonly randomRangeRatio: number;
  readonly randomPrefixLen: number;
  /** Null: as long as the answer in the file. */
  readonly sharegptOutputLen: number | null;
  readonly sonnetInputLen: number;
  readonly sonnetOutputLen: number;
  readonly sonnetPrefixLen: number;
}

export interface DatasetInput {
  readonly count: number;
  readonly random: Random;
  readonly vocabSize: number;
  /** Null where the server has none to ask: lengths of texts are estimates then. */
  readonly tokenizer: Tokenizer | null;
  readonly path: string | null;
  readonly options: DatasetOptions;
}

export interface Dataset {
  readonly name: string;
  readonly doc: string;
  /** At most `count` requests, fewer where the file has no more. @throws CliError when the file is missing or not what it must be */
  make(input: DatasetInput): Promise<readonly BenchRequest[]>;
}

/** Letters of English a token, near enough. */
const lettersPerToken = 4;

export async function countTokens(text: string, tokenizer: Tokenizer | null): Promise<number> {
  return tokenizer === null ? Math.ceil(text.length / lettersPerToken) : (await tokenizer.encode(text)).length;
}

const inFlight = 16;

/** Asks for all of them, a few at a time; results in order. */
export async function mapSome<T, R>(items: readonly T[], ask: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let i = next++; i < items.length; i = next++) results[i] = await ask(items[i] as T, i); // i < items.length
  };
  await Promise.all(Array.from({ length: Math.min(inFlight, items.length) }, worker));
  return results;
}
