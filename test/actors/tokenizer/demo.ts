/** The demo model in a harness, and token ids the way that it would write them. */
import type { Tokenizer } from 'tokenizers';
import { demoModel, demoPath, Harness, oracle, oracleIds } from './harness.js';

export const EOT = 4092;
export const tokenizer: Tokenizer = oracle(demoPath);

/** Ids of a text, the way a model would write it. */
export function idsOf(text: string): Promise<number[]> {
  return oracleIds(tokenizer, text);
}

export async function start(): Promise<Harness> {
  return Harness.start(demoModel);
}
