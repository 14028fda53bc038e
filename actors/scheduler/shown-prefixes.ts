/**
 * Shows on a board which beginnings the prefix cache holds, by keys of their content (routing/prefix-key.ts): where several engine groups
 * serve one model, whoever chooses between them reads it. Runs in the scheduler thread; used by kv-cache.ts, next to the prefix cache,
 * whose serial numbers mean nothing to others.
 */
import type { BoardWriter } from '../routing/board.js';
import { nextKey } from '../routing/prefix-key.js';
import { invariant } from '../runtime/invariant.js';

export class ShownPrefixes {
  readonly #board: Pick<BoardWriter, 'add' | 'remove'>;
  readonly #blockSize: number;
  /** By block; 0 = not published. */
  readonly #keys: Int32Array;
  /** Blocks by key: copies of one content are shown once. At most one entry a block. */
  readonly #copies = new Map<number, number>();

  constructor(board: Pick<BoardWriter, 'add' | 'remove'>, numBlocks: number, blockSize: number) {
    this.#board = board;
    this.#blockSize = blockSize;
    this.#keys = new Int32Array(numBlocks);
  }

  /** Of a published block. */
  keyOf(block: number): number {
    return this.#keys[block] ?? 0;
  }

  /** `block` was published with `tokens[offset .. offset + blockSize)` after what `parent` names; returns its key. */
  publish(block: number, parent: number, tokens: Int32Array, offset: number): number {
    const known = this.keyOf(block);
    if (known !== 0) return known;
    const key = nextKey(parent, tokens, offset, this.#blockSize);
    this.#keys[block] = key;
    const copies = this.#copies.get(key) ?? 0;
    this.#copies.set(key, copies + 1);
    if (copies === 0) this.#board.add(key);
    return key;
  }

  /** A block is about to be written anew. Does nothing for one that is not published. */
  forget(block: number): void {
    const key = this.keyOf(block);
    if (key === 0) return;
    this.#keys[block] = 0;
    const copies = this.#copies.get(key) ?? 0;
    if (copies > 1) {
      this.#copies.set(key, copies - 1);
      return;
    }
    this.#copies.delete(key);
    this.#board.remove(key);
  }

  /** @throws BrokenInvariant unless exactly the blocks that `isPublished` names have keys. */
  checkIntegrity(isPublished: (block: number) => boolean): void {
    let shown = 0;
    for (let block = 0; block < this.#keys.length; block++) {
      invariant((this.keyOf(block) !== 0) === isPublished(block), 'the board and the prefix cache disagree');
      if (this.keyOf(block) !== 0) shown++;
    }
    let copies = 0;
    for (const count of this.#copies.values()) copies += count;
    invariant(copies === shown, 'copies of shown blocks are counted wrongly');
  }
}
