/** Asks the native engine's own matcher what a grammar matches, byte by byte. */
import { after } from 'node:test';
import { addon, byteTokens, limits, vocabulary } from '../../../native/grammar/matcher.js';

const held: number[] = [];
after(() => {
  for (const grammar of held) addon.releaseGrammar(grammar);
});

/** True for the texts that the grammar matches as a whole. `extensions`: it may use what clients' grammars may not. */
export async function matcherOf(gbnf: string, extensions = false): Promise<(text: string) => boolean> {
  const grammar = await addon.compileGrammar(vocabulary(byteTokens), gbnf, { ...limits, extensions });
  held.push(grammar);
  return (text) => {
    const matcher = addon.createGrammarMatcher(grammar);
    return Buffer.from(text).every((byte) => matcher.accept(byte)) && matcher.complete();
  };
}
