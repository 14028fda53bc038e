/**
 * The KV blocks of each sequence: reuse of published prefixes, growth, sharing after a fork, copy on write, publishing. Runs in the
 * scheduler thread; the only user of block-pool.ts and prefix-cache.ts.
 *
 *   table of a sequence:   | hits | prompt and answer, written by this sequence | last, partly filled |
 *                            full, shared                                         shared after a fork until first written
 *
 * Rules that keep the content right while two steps are in flight:
 *  - executors run plans in order, so a block released while plan N+2 is made can be handed out in plan N+2 itself: whatever N and
 *    N+1 still write to it comes before its next owner's first write;
 *  - only full blocks all of whose rows have retired are published, so nothing in flight writes to a published block;
 *  - a block with several holders is never written: the last, partial block of a fork is copied by all of them but the last one.
 *
 * Blocks of a prompt are taken whole at admission, so a prefill never runs out in the middle. Released blocks go tail first: the
 * beginnings of prompts, which most others share, live longest.
 */
import type { BoardWriter } from '../routing/board.js';
import { BrokenInvariant } from '../runtime/invariant.js';
import { BlockPool } from './block-pool.js';
import type { SchedulerOptions } from './options.js';
import { PrefixCache } from './prefix-cache.js';
import type { Sequence } from './request.js';
import { ShownPrefixes } from './shown-prefixes.js';
import { type OwnPart, SwapSpace } from './swap-space.js';

/** What `makeWritable` did. */
export const WRITABLE = { noBlock: -1, already: 0, appended: 1, copied: 2 } as const;

type KvCacheOptions = Pick<SchedulerOptions, 'blockSize' | 'numBlocks' | 'numSwapBlocks' | 'enablePrefixCaching'>;

export class KvCache {
  readonly blockSize: number;
  readonly pool: BlockPool;
  readonly swap: SwapSpace;
  /** Blocks released so far: while it stands still, what did not fit still does not. */
  releases = 0;
  /** Source of the last `copied`; its destination is the sequence's last block. */
  copySource = -1;
  private readonly prefix: PrefixCache | null;
  /** Where others see what the prefix cache holds; null where nobody looks. */
  private shown: ShownPrefixes | null = null;
  /** Blocks of the last `match`, [numHits]. */
  private hits: Int32Array;

  constructor({ blockSize, numBlocks, numSwapBlocks, enablePrefixCaching }: KvCacheOptions) {
    this.blockSize = blockSize;
    this.pool = new BlockPool(numBlocks);
    this.swap = new SwapSpace(numSwapBlocks);
    this.prefix = enablePrefixCaching ? new PrefixCache(numBlocks, blockSize) : null;
    this.hits = new Int32Array(numBlocks);
  }

  /** From now on shows on `board` what the prefix cache holds. To be called before anything is published. */
  showOn(board: BoardWriter): void {
    if (this.prefix !== null) this.shown = new ShownPrefixes(board, this.pool.size, this.blockSize);
  }

  /**
   * Counts the leading blocks of a waiting sequence that can be shared. Never all of its tokens: the logits of the last one have to
   * be computed. Keeps the found blocks for `admit`, which must follow before anything else is called.
   */
  match(sequence: Sequence): number {
    if (this.prefix === null) return 0;
    const limit = Math.floor((sequence.numKnown - 1) / this.blockSize);
    let serial = sequence.request.rootSerial;
    let count = 0;
    while (count < limit) {
      const block = this.prefix.find(serial, sequence.tokens, count * this.blockSize);
      if (block === -1) break;
      serial = this.prefix.serialOf(block);
      this.hits[count++] = block;
    }
    return count;
  }

  /**
   * Gives a waiting sequence the first `numHits` blocks of the last `match` and new ones for the rest of its known tokens. Returns
   * false, with nothing changed, unless `spare` more blocks would stay free.
   */
  admit(sequence: Sequence, numHits: number, spare: number): boolean {
    const numBlocks = Math.ceil(sequence.numKnown / this.blockSize);
    let taken = numBlocks - numHits;
    for (let i = 0; i < numHits; i++) if (this.pool.refCount(this.hits[i]!) === 0) taken++; // a free block becomes held; i < numHits
    if (this.pool.numFree - taken < spare) return false;
    if (sequence.numBlocks !== 0) throw new BrokenInvariant('a waiting sequence holds blocks');
    this.ensureTable(sequence, numBlocks);
    for (let i = 0; i < numHits; i++) {
      const block = this.hits[i]!; // i < numHits
      this.pool.share(block);
      sequence.blocks[i] = block;
    }
    if (numHits > 0 && this.prefix !== null) {
      const last = this.hits[numHits - 1]!; // numHits > 0
      sequence.prefixSerial = this.prefix.serialOf(last);
      if (this.shown !== null) sequence.prefixKey = this.shown.keyOf(last);
    }
    for (let i = numHits; i < numBlocks; i++) sequence.blocks[i] = this.take();
    sequence.numBlocks = numBlocks;
    sequence.numPublished = numHits;
    sequence.numComputed = numHits * this.blockSize;
    sequence.numRetired = sequence.numComputed;
    return true;
  }

  /** Lets `position`, at most one block behind the table, be written: a new block at its end, or a copy of a shared last one. */
  makeWritable(sequence: Sequence, position: number): number {
    // Asked for each token of a step, and small enough to be compiled into the loop over them: the rest is elsewhere.
    const index = (position / this.blockSize) | 0;
    if (index >= sequence.numBlocks) return this.appendBlock(sequence);
    return this.pool.refCount(sequence.blocks[index]!) === 1 ? WRITABLE.already : this.copyBlock(sequence, index); // index < numBlocks
  }

  private appendBlock(sequence: Sequence): number {
    const block = this.take();
    if (block === -1) return WRITABLE.noBlock;
    const index = sequence.numBlocks;
    this.ensureTable(sequence, index + 1);
    sequence.blocks[index] = block;
    sequence.numBlocks = index + 1;
    return WRITABLE.appended;
  }

  private copyBlock(sequence: Sequence, index: number): number {
    const copy = this.take();
    if (copy === -1) return WRITABLE.noBlock;
    const shared = sequence.blocks[index]!; // index < numBlocks
    sequence.blocks[index] = copy;
    this.pool.release(shared, false); // others hold it: it is not freed
    this.copySource = shared;
    return WRITABLE.copied;
  }

  /** Others hold the block of `position`, too. */
  isShared(sequence: Sequence, position: number): boolean {
    const index = Math.floor(position / this.blockSize);
    return index < sequence.numBlocks && this.pool.refCount(sequence.blocks[index]!) > 1; // index < numBlocks
  }

  /** Shares all blocks of `from` with `to`, which has none. */
  fork(from: Sequence, to: Sequence): void {
    this.ensureTable(to, from.numBlocks);
    for (let i = 0; i < from.numBlocks; i++) {
      const block = from.blocks[i]!; // i < numBlocks
      this.pool.share(block);
      to.blocks[i] = block;
    }
    to.numBlocks = from.numBlocks;
  }

  /** The rows up to position `end` have retired: publishes the blocks they filled. */
  retire(sequence: Sequence, end: number): void {
    sequence.numRetired = end;
    if (this.prefix === null) return;
    while ((sequence.numPublished + 1) * this.blockSize <= end) {
      const index = sequence.numPublished;
      const block = sequence.blocks[index]!; // retired positions are covered by the table
      sequence.prefixSerial = this.prefix.publish(block, sequence.prefixSerial, sequence.tokens, index * this.blockSize);
      if (this.shown !== null) sequence.prefixKey = this.shown.publish(block, sequence.prefixKey, sequence.tokens, index * this.blockSize);
      sequence.numPublished = index + 1;
    }
  }

  /**
   * What would be lost of a running sequence if it gave way now, apart from the last of its known tokens, which has to be computed
   * again for its logits anyway. Leading blocks are left out while others hold them and the prefix cache finds them. So is a shared
   * block that is not full: its other holders may write to it while it is read.
   */
  ownPart(sequence: Sequence): OwnPart {
    const { pool, prefix, blockSize } = this;
    const { blocks } = sequence;
    let numTokens = Math.min(sequence.numComputed, sequence.numKnown - 1);
    const full = Math.floor(numTokens / blockSize);
    if (full * blockSize < numTokens && pool.refCount(blocks[full]!) > 1) numTokens = full * blockSize; // computed tokens have blocks
    const end = Math.ceil(numTokens / blockSize);
    let first = 0;
    // first < end <= numBlocks
    while (first < end && prefix !== null && pool.refCount(blocks[first]!) > 1 && prefix.holds(blocks[first]!)) first++;
    return { first, end, numTokens };
  }

  /** Gives back all blocks; published ones keep their content until they are needed. */
  release(sequence: Sequence): void {
    for (let i = sequence.numBlocks - 1; i >= 0; i--) {
      const block = sequence.blocks[i]!; // i < numBlocks
      this.pool.release(block, this.prefix?.holds(block) ?? false);
    }
    this.releases += sequence.numBlocks;
    sequence.numBlocks = 0;
  }

  /**
   * @throws BrokenInvariant unless the reference counts are exactly those of the tables of `holders`, every block has one place, and
   * the swap space is that of `waiting`.
   */
  checkIntegrity(holders: Iterable<Sequence>, waiting: Iterable<Sequence>): void {
    this.pool.checkIntegrity();
    this.swap.checkIntegrity(waiting);
    this.prefix?.checkIntegrity();
    this.shown?.checkIntegrity((block) => this.prefix?.holds(block) ?? false);
    const counted = new Int32Array(this.pool.size);
    for (const sequence of holders) {
      const own = new Set(sequence.blocks.subarray(0, sequence.numBlocks));
      if (own.size !== sequence.numBlocks) throw new BrokenInvariant(`a table of request ${sequence.request.id} names a block twice`);
      if (sequence.numBlocks * this.blockSize < sequence.numComputed) throw new BrokenInvariant('a block table is too short');
      for (const block of own) counted[block] = counted[block]! + 1; // in range: refCount is checked below
    }
    let held = 0;
    for (let block = 0; block < this.pool.size; block++) {
      if (counted[block] !== this.pool.refCount(block)) throw new BrokenInvariant(`block ${block} has a wrong reference count`);
      if (counted[block] !== 0) held++;
    }
    if (held + this.pool.numFree !== this.pool.size) throw new BrokenInvariant('free and held blocks do not add up');
  }

  private take(): number {
    const block = this.pool.take();
    if (block === -1) return block;
    this.prefix?.forget(block);
    this.shown?.forget(block);
    return block;
  }

  private ensureTable(sequence: Sequence, numBlocks: number): void {
    if (numBlocks <= sequence.blocks.length) return;
    const grown = new Int32Array(Math.max(numBlocks, sequence.blocks.length * 2));
    grown.set(sequence.blocks);
    sequence.blocks = grown;
  }
}
