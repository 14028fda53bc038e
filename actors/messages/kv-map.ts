/** A picture of the KV pool, as the scheduler draws it and clients get it: a byte a cell. */
import type { RequestId } from './ids.js';

/** What a cell shows. From `owner` on: a block of the owner with that number less `owner`. */
export const KV_CELL = { free: 0, cached: 1, shared: 2, owner: 3, others: 255 } as const;

/** Requests that have a number of their own; blocks of further ones show as `others`. */
export const MAX_KV_OWNERS = KV_CELL.others - KV_CELL.owner;

export interface KvMap {
  readonly totalBlocks: number;
  /** Blocks side by side that a cell stands for; it shows the busiest: held, cached, free. */
  readonly blocksPerCell: number;
  readonly cells: Uint8Array;
  /** By number; `blocks` counts shared ones too. */
  readonly owners: readonly { readonly id: RequestId; readonly blocks: number }[];
}
