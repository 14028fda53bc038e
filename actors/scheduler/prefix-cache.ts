/**
 * Which block holds the KV of which token prefix. Runs in the scheduler thread; used by kv-cache.ts only.
 *
 * The KV of a full block depends on its tokens and on everything before them. Everything before is named by a serial number: the
 * first block to hold a given (parent serial, tokens) draws a fresh serial, later copies of the same content share it, and a
 * serial is never used again. The chain is thus
 *
 *   ROOT -(tokens of block 0)-> serial a -(tokens of block 1)-> serial b ...
 *
 * A lookup hashes (parent serial, tokens) to find candidates and then compares both exactly, so a hash collision costs a
 * comparison and never a wrong answer, also when it was provoked. (Chains of content hashes, as in vLLM and nano-vllm, would
 * need a cryptographic hash for that.) Copies are all listed, so that a prefix survives the eviction of one of them.
 *
 * Open addressing with linear probing, at most half full, deletion by shifting back; O(1) and free of allocation.
 */
import { nextKey } from '../routing/prefix-key.js';
import { BrokenInvariant } from '../runtime/invariant.js';

/** Serial of the empty prefix. Below it are those of requests for adapters (request.ts), which share nothing. */
export const ROOT = 0;

export class PrefixCache {
  private readonly blockSize: number;
  private readonly mask: number;
  /** block + 1, or 0 for an empty cell. */
  private readonly cells: Int32Array;
  /** Cell of a published block, -1 when it is not published. */
  private readonly cellOf: Int32Array;
  private readonly hashes: Int32Array;
  private readonly serials: Float64Array;
  private readonly parents: Float64Array;
  /** Token ids by block, [numBlocks, blockSize]. */
  private readonly content: Int32Array;
  private nextSerial = ROOT + 1;
  private count = 0;

  constructor(numBlocks: number, blockSize: number) {
    this.blockSize = blockSize;
    let capacity = 16;
    while (capacity < numBlocks * 2) capacity *= 2;
    this.mask = capacity - 1;
    this.cells = new Int32Array(capacity);
    this.cellOf = new Int32Array(numBlocks).fill(-1);
    this.hashes = new Int32Array(numBlocks);
    this.serials = new Float64Array(numBlocks);
    this.parents = new Float64Array(numBlocks);
    this.content = new Int32Array(numBlocks * blockSize);
  }

  /** Published blocks. */
  get size(): number {
    return this.count;
  }

  /** True while `block` is published. */
  holds(block: number): boolean {
    return this.cellOf[block] !== -1;
  }

  /** Serial of a published block. */
  serialOf(block: number): number {
    return this.serials[block] ?? ROOT;
  }

  /** A block with the KV of `tokens[offset .. offset + blockSize)` after the prefix `parent`, or -1. */
  find(parent: number, tokens: Int32Array, offset: number): number {
    return this.findHashed(this.hash(parent, tokens, offset), parent, tokens, offset);
  }

  /**
   * Publishes that `block` holds `tokens[offset .. offset + blockSize)` after the prefix `parent`; returns the serial of that
   * prefix. A block already published (by a sequence that shares it) keeps its serial.
   */
  publish(block: number, parent: number, tokens: Int32Array, offset: number): number {
    if (this.holds(block)) return this.serialOf(block);
    const hash = this.hash(parent, tokens, offset);
    const twin = this.findHashed(hash, parent, tokens, offset);
    const serial = twin === -1 ? this.nextSerial++ : this.serialOf(twin);
    let cell = hash & this.mask;
    while (this.cells[cell] !== 0) cell = (cell + 1) & this.mask;
    this.cells[cell] = block + 1;
    this.cellOf[block] = cell;
    this.hashes[block] = hash;
    this.serials[block] = serial;
    this.parents[block] = parent;
    const { content, blockSize } = this;
    const base = block * blockSize;
    for (let i = 0; i < blockSize; i++) content[base + i] = tokens[offset + i]!; // caller passes a full block
    this.count++;
    return serial;
  }

  /** Withdraws a published block, because it is about to be written anew. Does nothing for an unpublished one. */
  forget(block: number): void {
    let hole = this.cellOf[block] ?? -1;
    if (hole === -1) return;
    this.cellOf[block] = -1;
    this.count--;
    // Close the gap: a later entry of the run moves into the hole unless it already stands between its home and the hole.
    for (let cell = (hole + 1) & this.mask; this.cells[cell] !== 0; cell = (cell + 1) & this.mask) {
      const moved = this.cells[cell]! - 1; // cell index is masked
      const home = this.hashes[moved]! & this.mask;
      if (((cell - home) & this.mask) < ((cell - hole) & this.mask)) continue;
      this.cells[hole] = moved + 1;
      this.cellOf[moved] = hole;
      hole = cell;
    }
    this.cells[hole] = 0;
  }

  /** @throws BrokenInvariant when table and columns disagree. */
  checkIntegrity(): void {
    let listed = 0;
    for (let cell = 0; cell < this.cells.length; cell++) {
      const block = this.cells[cell]! - 1; // in range
      if (block === -1) continue;
      listed++;
      if (this.cellOf[block] !== cell) throw new BrokenInvariant(`prefix cache lists block ${block} at the wrong cell`);
      for (let probe = this.hashes[block]! & this.mask; probe !== cell; probe = (probe + 1) & this.mask) {
        if (this.cells[probe] === 0) throw new BrokenInvariant(`prefix cache cannot reach block ${block}`);
      }
    }
    if (listed !== this.count) throw new BrokenInvariant(`prefix cache lists ${listed} blocks, counted ${this.count}`);
  }

  private findHashed(hash: number, parent: number, tokens: Int32Array, offset: number): number {
    for (let cell = hash & this.mask; ; cell = (cell + 1) & this.mask) {
      const block = this.cells[cell]! - 1; // cell index is masked
      if (block === -1) return -1;
      if (this.hashes[block] === hash && this.parents[block] === parent && this.equal(block, tokens, offset)) return block;
    }
  }

  private equal(block: number, tokens: Int32Array, offset: number): boolean {
    const { content, blockSize } = this;
    const base = block * blockSize;
    for (let i = 0; i < blockSize; i++) if (content[base + i] !== tokens[offset + i]) return false;
    return true;
  }

  /** Of the serial, which has up to 53 bits, and the tokens. Overridden by the test that makes everything collide. */
  protected hash(parent: number, tokens: Int32Array, offset: number): number {
    return nextKey(Math.imul(parent | 0, 0x9e3779b1) ^ ((parent / 0x1_0000_0000) | 0), tokens, offset, this.blockSize);
  }
}
