/**
 * The oracle of the soak: questions whose one right answer is known without asking a model. The embedded model lists the numbers of any
 * range below without a mistake, so each request asks for a range of its own, and a token that went astray between two requests, was lost
 * or came twice shows in the text.
 */
import type { Random } from './random.js';

export interface Counting {
  readonly prompt: string;
  readonly want: string;
}

/** Ranges that the embedded model was measured to list exactly, in both wordings. */
const FIRST = { min: 10, max: 49 } as const;
const LENGTH = { min: 4, max: 20 } as const;

export function countingTask(random: Random): Counting {
  const first = random.between(FIRST.min, FIRST.max);
  const last = first + random.between(LENGTH.min, LENGTH.max);
  const prompt = random.chance(0.5) ? `List the numbers from ${first} to ${last}.` : `Count from ${first} to ${last}.`;
  return { prompt, want: Array.from({ length: last - first + 1 }, (_, i) => first + i).join(', ') };
}

/** What no line of a log may hold: the words of a prompt, or the beginning of an answer. */
export const secretText = /List the numbers|Count from|\b\d+, \d+, \d+/;
