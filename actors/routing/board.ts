/**
 * What an engine group shows to those who choose between groups: which beginnings of prompts its prefix cache holds, by their keys, and how
 * much work it has. Int32 words in shared memory; one writer (the group's scheduler), any reader (tokenizers), no locks: a reader may see
 * a board that is a moment old, and then chooses less well.
 *
 *   [prompt tokens | running | waiting | pad .. | bucket 0 | bucket 1 | ..]        bucket = 16 keys, one cache line; 0 = empty
 *
 * A key lies anywhere in the bucket that its low bits name. There are two to four times as many places as blocks, so a bucket is full once in
 * some hundred; then one of its keys gives way, and what it names is not found again until it is published anew.
 */

/** How much work there is. */
export interface Work {
  /** Tokens of prompts that have to be computed. */
  readonly promptTokens: number;
  /** Requests with a sequence in a slot. */
  readonly running: number;
  /** Requests with none. */
  readonly waiting: number;
}

export type BoardMemory = Int32Array<SharedArrayBuffer>;

const PROMPT_TOKENS = 0;
const RUNNING = 1;
const WAITING = 2;
const HEADER_WORDS = 16;
const BUCKET = 16;
/** 16 MiB; a group with more blocks than half of this shows not all of them. */
const MAX_PLACES = 2 ** 22;

/** `numBlocks`: of the group's KV cache. */
export function createBoard(numBlocks: number): BoardMemory {
  let places = BUCKET;
  while (places < 2 * numBlocks && places < MAX_PLACES) places *= 2;
  return new Int32Array(new SharedArrayBuffer(4 * (HEADER_WORDS + places)));
}

/** First word of a key's bucket. */
function bucketOf(memory: BoardMemory, key: number): number {
  return HEADER_WORDS + (key & ((memory.length - HEADER_WORDS) / BUCKET - 1)) * BUCKET;
}

export class BoardWriter {
  readonly #memory: BoardMemory;

  constructor(memory: BoardMemory) {
    this.#memory = memory;
  }

  add(key: number): void {
    const memory = this.#memory;
    const first = bucketOf(memory, key);
    let place = first + ((key >>> 27) & (BUCKET - 1)); // gives way when all are taken
    for (let at = first; at < first + BUCKET; at++) {
      if (memory[at] === key) return;
      if (memory[at] === 0) {
        place = at;
        break;
      }
    }
    memory[place] = key;
  }

  remove(key: number): void {
    const memory = this.#memory;
    const first = bucketOf(memory, key);
    let last = first;
    let found = -1;
    for (let at = first; at < first + BUCKET && memory[at] !== 0; at++) {
      if (memory[at] === key) found = at;
      last = at;
    }
    if (found === -1) return;
    // Keys of a bucket lie without gaps, so that a search ends at the first empty place.
    memory[found] = memory[last]!; // last < length
    memory[last] = 0;
  }

  tell({ promptTokens, running, waiting }: Work): void {
    const memory = this.#memory;
    memory[PROMPT_TOKENS] = promptTokens;
    memory[RUNNING] = running;
    memory[WAITING] = waiting;
  }
}

export class BoardReader {
  readonly #memory: BoardMemory;

  constructor(memory: BoardMemory) {
    this.#memory = memory;
  }

  has(key: number): boolean {
    const memory = this.#memory;
    const first = bucketOf(memory, key);
    for (let at = first; at < first + BUCKET; at++) {
      if (memory[at] === key) return true;
      if (memory[at] === 0) return false;
    }
    return false;
  }

  work(): Work {
    const memory = this.#memory;
    return { promptTokens: memory[PROMPT_TOKENS] ?? 0, running: memory[RUNNING] ?? 0, waiting: memory[WAITING] ?? 0 };
  }
}
