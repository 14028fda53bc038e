/** Which of the generated sequences are given to the caller: all of them, or the n best of best_of. */
import type { Choice } from './choice.js';

/** `choices`: `bestOf` per prompt. Returns `n` per prompt: in order, or by highest sum of log-probabilities when bestOf > n. */
export function givenChoices(choices: readonly Choice[], n: number, bestOf: number): readonly Choice[] {
  if (bestOf === n) return choices;
  const given: Choice[] = [];
  for (let at = 0; at < choices.length; at += bestOf) {
    const ranked = choices.slice(at, at + bestOf).sort((a, b) => b.cumulative - a.cumulative);
    given.push(...ranked.slice(0, n));
  }
  return given;
}
