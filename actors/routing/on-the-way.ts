/**
 * Requests that were sent over one link to a group and are not on its board yet: else all that come in one moment would choose the same group.
 * Two int32 words in shared memory for each link, how many requests and prompt tokens its reader has put on the board, added up; they
 * wrap.
 */
import type { Candidate } from './router.js';

export type TakenMemory = Int32Array<SharedArrayBuffer>;

const REQUESTS = 0;
const PROMPT_TOKENS = 1;

export function createTaken(): TakenMemory {
  return new Int32Array(new SharedArrayBuffer(8));
}

/** What went over a link so far, as one of its ends counted it. */
class Totals {
  requests = 0;
  promptTokens = 0;

  add(promptTokens: number): void {
    this.requests = (this.requests + 1) | 0;
    this.promptTokens = (this.promptTokens + promptTokens) | 0;
  }
}

/** The end of the group's scheduler. */
export class Taken {
  readonly #memory: TakenMemory;
  readonly #taken = new Totals();

  constructor(memory: TakenMemory) {
    this.#memory = memory;
  }

  take(promptTokens: number): void {
    this.#taken.add(promptTokens);
  }

  /** What was taken is on the board now. */
  tell(): void {
    this.#memory[REQUESTS] = this.#taken.requests;
    this.#memory[PROMPT_TOKENS] = this.#taken.promptTokens;
  }
}

/** The end of the tokenizer. */
export class OnTheWay {
  readonly #memory: TakenMemory;
  readonly #sent = new Totals();

  constructor(memory: TakenMemory) {
    this.#memory = memory;
  }

  send(promptTokens: number): void {
    this.#sent.add(promptTokens);
  }

  now(): Candidate['onTheWay'] {
    const [requests = 0, promptTokens = 0] = this.#memory;
    return { waiting: (this.#sent.requests - requests) | 0, promptTokens: (this.#sent.promptTokens - promptTokens) | 0 };
  }
}
