/**
 * Host blocks that keep the KV of preempted sequences. Runs in the scheduler thread; used by kv-cache.ts, planner.ts and roster.ts.
 *
 *   table of a preempted sequence:   | shared, in the prefix cache | saved: copied to the host | not computed |
 *                                    0                             first                      first + blocks
 *
 * What comes back is whatever the prefix cache then lacks, as long as the cache still reaches the first saved block; otherwise the
 * copy is worth nothing and the sequence is computed again. Executors carry swaps out in the order of plans, so a host block that is
 * given up while its copy is under way may be handed out again at once.
 */
import { BrokenInvariant } from '../runtime/invariant.js';
import { BlockPool } from './block-pool.js';
import type { Request, Sequence } from './request.js';

/** Blocks [first, end) of a table, which hold the KV of the tokens up to `numTokens` that nobody else keeps. */
export interface OwnPart {
  readonly first: number;
  readonly end: number;
  readonly numTokens: number;
}

/** Told of each block that has to be copied. */
export type Move = (source: number, destination: number) => void;

export class SwapSpace {
  private readonly pool: BlockPool;
  private readonly holders = new Set<Sequence>();

  constructor(numBlocks: number) {
    this.pool = new BlockPool(numBlocks);
  }

  get size(): number {
    return this.pool.size;
  }

  get used(): number {
    return this.pool.size - this.pool.numFree;
  }

  /** Requests none of whose sequences runs, while one has its KV here. */
  get numRequests(): number {
    if (this.holders.size === 0) return 0; // read in every turn
    const requests = new Set<Request>();
    for (const { request } of this.holders) if (request.numRunning === 0) requests.add(request);
    return requests.size;
  }

  /** Saves the part of a sequence that is about to leave its blocks. @returns whether there was room; when not, nothing was done. */
  save(sequence: Sequence, part: OwnPart, move: Move): boolean {
    if (part.end - part.first > this.pool.numFree) return false;
    if (sequence.saved !== null) throw new BrokenInvariant('a running sequence is saved already');
    const blocks: number[] = [];
    for (let index = part.first; index < part.end; index++) {
      const block = this.pool.take();
      move(sequence.blocks[index]!, block); // the part lies within the table
      blocks.push(block);
    }
    sequence.saved = { first: part.first, blocks, numTokens: part.numTokens };
    this.holders.add(sequence);
    return true;
  }

  /**
   * Brings back what was saved, after the sequence got new blocks, the first `numHits` of them from the prefix cache; the copy ends.
   * Without effect when it has none, or it does not go beyond the hits or is cut off from them.
   */
  restore(sequence: Sequence, numHits: number, move: Move): void {
    const { saved } = sequence;
    if (saved === null) return;
    if (numHits >= saved.first && numHits < saved.first + saved.blocks.length) {
      for (let index = numHits; index < saved.first + saved.blocks.length; index++) {
        move(saved.blocks[index - saved.first]!, sequence.blocks[index]!); // within the copy, and the table is as long
      }
      sequence.numComputed = saved.numTokens;
      sequence.numRetired = saved.numTokens;
    }
    this.discard(sequence);
  }

  /** Gives up the copy of a sequence, if there is one. */
  discard(sequence: Sequence): void {
    const { saved } = sequence;
    if (saved === null) return;
    for (const block of saved.blocks) this.pool.release(block, false);
    sequence.saved = null;
    this.holders.delete(sequence);
  }

  /** @throws BrokenInvariant unless the blocks in use are exactly those of the sequences in `waiting` that have a copy. */
  checkIntegrity(waiting: Iterable<Sequence>): void {
    this.pool.checkIntegrity();
    const counted = new Set<number>();
    let holders = 0;
    for (const sequence of waiting) {
      const { saved } = sequence;
      if (saved === null) continue;
      holders++;
      if (!this.holders.has(sequence)) throw new BrokenInvariant('a saved sequence is not listed');
      if (saved.blocks.length === 0 || saved.numTokens >= sequence.numKnown) throw new BrokenInvariant('a copy has a wrong length');
      for (const block of saved.blocks) {
        if (counted.has(block) || this.pool.refCount(block) !== 1) throw new BrokenInvariant(`host block ${block} has two owners`);
        counted.add(block);
      }
    }
    if (holders !== this.holders.size || counted.size !== this.used) throw new BrokenInvariant('a host block is lost');
  }
}
