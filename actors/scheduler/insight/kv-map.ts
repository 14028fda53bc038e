/**
 * A picture of the KV pool: whose each block is. Pure; runs in the scheduler thread when somebody asks, in time proportional to the pool.
 *
 * A cell stands for one block, or for several that lie side by side when the pool has more blocks than the picture has cells; it then
 * shows the busiest of them, so that nothing that is in use is hidden: held before cached before free.
 */
import { KV_CELL, type KvMap, MAX_KV_OWNERS } from '../../messages/kv-map.js';
import type { Request } from '../request.js';
import type { Roster } from '../roster.js';

/** `maxCells`: at least 1. */
export function drawKvMap({ kv, running }: Pick<Roster, 'kv' | 'running'>, maxCells: number): KvMap {
  const { pool } = kv;
  const blocksPerCell = Math.max(1, Math.ceil(pool.size / maxCells));
  const cells = new Uint8Array(Math.ceil(pool.size / blocksPerCell));
  if (pool.numCached > 0) {
    for (let block = 0; block < pool.size; block++) if (pool.isCached(block)) cells[Math.floor(block / blocksPerCell)] = KV_CELL.cached;
  }
  const owners = new Map<Request, { code: number; blocks: number }>();
  for (const { request, blocks, numBlocks } of running.items) {
    let owner = owners.get(request);
    if (owner === undefined) {
      owner = { code: owners.size < MAX_KV_OWNERS ? KV_CELL.owner + owners.size : KV_CELL.others, blocks: 0 };
      owners.set(request, owner);
    }
    owner.blocks += numBlocks;
    for (let i = 0; i < numBlocks; i++) {
      const block = blocks[i]!; // i < numBlocks
      cells[Math.floor(block / blocksPerCell)] = pool.refCount(block) > 1 ? KV_CELL.shared : owner.code;
    }
  }
  return {
    totalBlocks: pool.size,
    blocksPerCell,
    cells,
    owners: [...owners].slice(0, MAX_KV_OWNERS).map(([{ id }, { blocks }]) => ({ id, blocks })),
  };
}
