/**
 * Who holds each KV block: reference counts and the free blocks in eviction order. Runs in the scheduler thread; used by
 * kv-cache.ts only. Knows nothing of tokens.
 *
 *   free, in the order they are handed out:   vacant (no reusable content, a stack)
 *                                             cached (published content, least recently released first, a linked list)
 *
 * Invariants: a block is in exactly one of held (refs > 0), vacant, cached; every operation is O(1) and allocates nothing.
 * The free list in eviction order with removal from its middle is vLLM's (block_pool.py).
 */
import { BrokenInvariant } from '../runtime/invariant.js';

const HELD = 0;
const VACANT = 1;
const CACHED = 2;

export class BlockPool {
  readonly size: number;
  private readonly refs: Int32Array;
  private readonly place: Uint8Array;
  private readonly vacant: Int32Array;
  private numVacant: number;
  /** Links of the cached list; entry `size` is the sentinel: next[size] is handed out first. */
  private readonly next: Int32Array;
  private readonly previous: Int32Array;
  private cachedCount = 0;

  constructor(size: number) {
    this.size = size;
    this.refs = new Int32Array(size);
    this.place = new Uint8Array(size).fill(VACANT);
    this.vacant = new Int32Array(size);
    for (let i = 0; i < size; i++) this.vacant[i] = size - 1 - i; // lowest id on top
    this.numVacant = size;
    this.next = new Int32Array(size + 1).fill(-1);
    this.previous = new Int32Array(size + 1).fill(-1);
    this.next[size] = size;
    this.previous[size] = size;
  }

  /** Blocks that `take` can still hand out. */
  get numFree(): number {
    return this.numVacant + this.cachedCount;
  }

  /** Free blocks whose content can be shared again. */
  get numCached(): number {
    return this.cachedCount;
  }

  /** Holders of `block`. */
  refCount(block: number): number {
    return this.refs[block] ?? 0;
  }

  /** Free, with content that can be shared again. */
  isCached(block: number): boolean {
    return this.place[block] === CACHED;
  }

  /**
   * Hands out a free block with one reference, or -1 when every block is held. A cached block loses its content: the caller
   * must forget what was published about it.
   */
  take(): number {
    let block: number;
    if (this.numVacant > 0) {
      block = this.vacant[--this.numVacant]!; // numVacant entries are filled
    } else {
      block = this.next[this.size]!; // the sentinel always has a successor, itself when the list is empty
      if (block === this.size) return -1;
      this.unlink(block);
    }
    this.place[block] = HELD;
    this.refs[block] = 1;
    return block;
  }

  /** Adds a holder to a held or cached block. @throws BrokenInvariant on a vacant block: its content is undefined. */
  share(block: number): void {
    const place = this.place[block];
    if (place === VACANT || place === undefined) throw new BrokenInvariant(`block ${block} is shared but holds nothing`);
    if (place === CACHED) {
      this.unlink(block);
      this.place[block] = HELD;
    }
    this.refs[block] = this.refCount(block) + 1;
  }

  /** Removes a holder. The last one frees the block: as cached when `keepContent`, else as vacant. @throws BrokenInvariant on a free block. */
  release(block: number, keepContent: boolean): void {
    if (this.place[block] !== HELD) throw new BrokenInvariant(`block ${block} is released but nobody holds it`);
    const refs = this.refCount(block) - 1;
    this.refs[block] = refs;
    if (refs > 0) return;
    if (keepContent) {
      this.place[block] = CACHED;
      this.append(block);
    } else {
      this.place[block] = VACANT;
      this.vacant[this.numVacant++] = block;
    }
  }

  /** @throws BrokenInvariant when the places, counts and lists disagree. */
  checkIntegrity(): void {
    const seen = new Uint8Array(this.size);
    for (let i = 0; i < this.numVacant; i++) this.checkFree(this.vacant[i]!, VACANT, seen); // below numVacant: filled
    let inList = 0;
    for (let block = this.next[this.size]!; block !== this.size; block = this.next[block]!) {
      this.checkFree(block, CACHED, seen);
      if (this.next[this.previous[block]!] !== block) throw new BrokenInvariant(`cached list is broken at block ${block}`);
      inList++;
    }
    if (inList !== this.cachedCount) throw new BrokenInvariant(`cached list has ${inList} blocks, counted ${this.cachedCount}`);
    for (let block = 0; block < this.size; block++) {
      if (seen[block] === 0 && (this.place[block] !== HELD || this.refCount(block) < 1))
        throw new BrokenInvariant(`block ${block} is lost`);
    }
  }

  private checkFree(block: number, place: number, seen: Uint8Array): void {
    if (seen[block] !== 0) throw new BrokenInvariant(`block ${block} is free twice`);
    if (this.place[block] !== place || this.refCount(block) !== 0) throw new BrokenInvariant(`block ${block} is in the wrong free list`);
    seen[block] = 1;
  }

  private append(block: number): void {
    const last = this.previous[this.size]!; // the sentinel always has a predecessor
    this.next[last] = block;
    this.previous[block] = last;
    this.next[block] = this.size;
    this.previous[this.size] = block;
    this.cachedCount++;
  }

  private unlink(block: number): void {
    const next = this.next[block]!; // a listed block has both links
    const previous = this.previous[block]!;
    this.next[previous] = next;
    this.previous[next] = previous;
    this.next[block] = -1;
    this.previous[block] = -1;
    this.cachedCount--;
  }
}
