/**
 * Chooses the engine group of a request: where the least is to be done before its first token. Pure but for a counter; called once a request
 * in a tokenizer's thread, and reads nothing but the boards of the groups.
 *
 * Of each group is counted, in tokens: what of the prompt its prefix cache lacks, the prompts that it still has to compute, and a little for
 * each request that runs or waits. So a conversation goes on where its beginning lies, and so does all that shares a long system prompt,
 * until that group has so much more to do than another that computing the beginning there once more is quicker. Groups that are equal take
 * turns.
 */
import type { BoardReader, Work } from './board.js';
import { nextKey, rootKey } from './prefix-key.js';

/** A group that can take requests. */
export interface Candidate {
  readonly board: BoardReader;
  /** What was sent there and is not on its board yet. */
  readonly onTheWay: Pick<Work, 'promptTokens' | 'waiting'>;
}

export interface Choice {
  /** Which of the candidates. */
  readonly index: number;
  /** Tokens of the prompt that have to be computed there, about. */
  readonly newTokens: number;
}

/** A request that runs takes a row of each step; one that waits has all of its answer before it. In tokens of prompts. */
const RUNNING_COST = 8;
const WAITING_COST = 64;
/** Tokens at the beginning of a prompt that are compared: bounds the time of a choice. */
const MAX_COMPARED = 32_768;
/** Blocks that are looked up at first. */
const FIRST_BLOCKS = 16;

export class Router {
  readonly #blockSize: number;
  /** Of the blocks of the prompt at hand, the first `#made` of which are there. */
  readonly #keys: Int32Array;
  #made = 0;
  #turn = 0;
  /** Key of the empty beginning of the request in hand. */
  #root = rootKey(0);

  /** `blockSize`: tokens in a KV block. */
  constructor(blockSize: number) {
    this.#blockSize = blockSize;
    this.#keys = new Int32Array(Math.ceil(MAX_COMPARED / blockSize));
  }

  /** `candidates`: one at least. `adapter`: of the request, 0 for none. */
  choose(candidates: readonly Candidate[], prompt: Int32Array, adapter = 0): Choice {
    this.#root = rootKey(adapter);
    const matched = this.#matched(candidates, prompt);
    const turn = this.#turn++;
    let best: Choice = { index: 0, newTokens: prompt.length };
    let least = Number.POSITIVE_INFINITY;
    for (let i = 0; i < candidates.length; i++) {
      const index = (turn + i) % candidates.length;
      const newTokens = prompt.length - matched[index]!; // one for each candidate
      const cost = newTokens + workOf(candidates[index]!); // index < length
      if (cost >= least) continue;
      least = cost;
      best = { index, newTokens };
    }
    return best;
  }

  /**
   * Tokens of the beginning that each candidate holds; the last token of a prompt is always computed. Caches give up the ends of what they
   * hold first, so the number of blocks is searched in steps that double, and no more keys are made than twice what is found.
   */
  #matched(candidates: readonly Candidate[], prompt: Int32Array): number[] {
    const limit = Math.floor(Math.min(prompt.length - 1, MAX_COMPARED) / this.#blockSize);
    const keys = this.#keys;
    this.#made = 0;
    let end = Math.min(FIRST_BLOCKS, limit);
    this.#extend(prompt, end);
    while (end < limit && candidates.some(({ board }) => board.has(keys[end - 1]!))) {
      end = Math.min(2 * end, limit); // one key each
      this.#extend(prompt, end);
    }
    return candidates.map(({ board }) => {
      // The blocks before `held` are there; block `none`, or the end, is not.
      let held = 0;
      let none = end + 1;
      while (held + 1 < none) {
        const middle = (held + none) >>> 1;
        if (board.has(keys[middle - 1]!))
          held = middle; // 0 < middle <= end
        else none = middle;
      }
      return held * this.#blockSize;
    });
  }

  /** Makes the keys of the first `end` blocks. */
  #extend(prompt: Int32Array, end: number): void {
    const keys = this.#keys;
    const size = this.#blockSize;
    let key = keys[this.#made - 1] ?? this.#root;
    for (let block = this.#made; block < end; block++) {
      key = nextKey(key, prompt, block * size, size);
      keys[block] = key;
    }
    this.#made = end;
  }
}

function workOf({ board, onTheWay }: Candidate): number {
  const { promptTokens, running, waiting } = board.work();
  return promptTokens + onTheWay.promptTokens + RUNNING_COST * (running + onTheWay.waiting) + WAITING_COST * waiting;
}
