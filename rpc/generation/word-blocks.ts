/**
 * int32 words that an answer gathers while it is generated: token ids and log-probability records. In blocks, so that growing copies
 * nothing and a full store has little unused room. What is added together stays together.
 */

const FIRST_BLOCK_WORDS = 16;
const LARGEST_BLOCK_WORDS = 2 ** 14;

export class WordBlocks implements Iterable<Int32Array> {
  /** Words of all blocks. */
  length = 0;
  readonly #full: Int32Array[] = [];
  #last = new Int32Array(0);
  #used = 0;

  /** Copies `words`, or keeps them when they are many: they belong to the store then. */
  add(words: Int32Array | readonly number[]): void {
    if (words.length === 0) return;
    this.length += words.length;
    if (words instanceof Int32Array && words.length >= LARGEST_BLOCK_WORDS / 4) {
      this.#close();
      this.#full.push(words);
      return;
    }
    if (this.#used + words.length > this.#last.length) {
      const next = Math.min(LARGEST_BLOCK_WORDS, Math.max(FIRST_BLOCK_WORDS, 2 * this.#last.length));
      this.#close();
      this.#last = new Int32Array(Math.max(next, words.length));
    }
    this.#last.set(words, this.#used);
    this.#used += words.length;
  }

  /** Views, in the order of adding. */
  *[Symbol.iterator](): Generator<Int32Array> {
    yield* this.#full;
    if (this.#used > 0) yield this.#last.subarray(0, this.#used);
  }

  #close(): void {
    if (this.#used > 0) this.#full.push(this.#last.subarray(0, this.#used));
    this.#last = new Int32Array(0);
    this.#used = 0;
  }
}
