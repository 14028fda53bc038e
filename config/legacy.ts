/**
 * Keys of Atoma Infer files that inferd has no option for. They are accepted, so that such a file runs as it is, and each gives one
 * warning that says what happens instead. Called by load.ts.
 */

export interface LegacyKey {
  /** The value becomes that of this option, unless the option itself is set. */
  readonly becomes?: string;
  /** One sentence for the user. */
  readonly note: string;
}

/** By "section.key". */
export const legacyKeys: ReadonlyMap<string, LegacyKey> = new Map<string, LegacyKey>([
  ['cache.num_gpu_blocks', { becomes: 'cache.num_gpu_blocks_override', note: 'is read as cache.num_gpu_blocks_override' }],
  [
    'cache.num_cpu_blocks',
    { note: 'is ignored: the number follows from cache.swap_space_bytes or cache.swap_space_fraction; remove the key' },
  ],
  ['scheduler.block_size', { note: 'is ignored: the block size is cache.block_size; remove the key' }],
]);
