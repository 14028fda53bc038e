/**
 * Brings one engine up: create, load in chunks, size and allocate the KV cache. Runs in the executor's thread before its loop; between
 * chunks it looks for a stop request, so that a daemon that is told to stop while loading does so within one chunk.
 */
import { deviceKinds } from '../../native/device-kinds.js';
import type { EngineOptions, NativeEngine, NativeModelInfo } from '../../native/index.js';
import type { Capacity } from '../messages/control.js';
import type { Control } from '../runtime/actor.js';
import { kvBlocks, swapBlocks } from './capacity.js';
import { ranksOfGroup } from './share.js';

/** Weights read between two looks at the control port. */
const CHUNK_BYTES = 64 * 2 ** 20;
/** Swap space beyond this share of the free host memory is worth a warning. */
const MUCH_SWAP_SHARE = 0.4;

export interface KvSettings {
  /** cache.gpu_memory_utilization. */
  readonly utilization: number;
  /** cache.num_gpu_blocks_override. */
  readonly numBlocksOverride: number | null;
  /** scheduler.preemption_mode; "recompute" takes no swap space. */
  readonly preemptionMode: 'auto' | 'recompute' | 'swap';
  /** cache.swap_space_bytes and cache.swap_space_fraction. */
  readonly swapBytes: number | null;
  readonly swapFraction: number | null;
  /** Engine groups of this host: they take equal parts of its memory. */
  readonly groups: number;
  /** Other groups that are loading, so that their weights are not in what is measured. */
  readonly loading: number;
}

export interface StartedNativeEngine {
  readonly engine: NativeEngine;
  readonly capacity: Capacity;
}

/**
 * Null when a stop request came while loading; nothing is left open then.
 * @throws NativeError (bad model, unsupported, out of memory) or InferdError with the arithmetic of the KV cache.
 */
export function startNativeEngine(
  create: (options: EngineOptions) => NativeEngine,
  options: EngineOptions,
  kv: KvSettings,
  control: Control,
): StartedNativeEngine | null {
  const engine = create(options);
  let started: StartedNativeEngine | null = null;
  try {
    if (load(engine, control)) started = { engine, capacity: allocate(engine, options, kv, control) };
  } finally {
    if (started === null) engine.close();
  }
  return started;
}

/** False when it was told to stop. */
function load(engine: NativeEngine, control: Control): boolean {
  for (;;) {
    control.poll();
    if (control.stopping) return false;
    const { doneBytes, totalBytes, done } = engine.load(CHUNK_BYTES);
    control.progress({ phase: 'weights', done: doneBytes, total: totalBytes });
    if (done) return true;
  }
}

/** The least of each number over the ranks, of which one that fails ends the wait of the others. */
const leastOfRanks = (engine: NativeEngine, { worldSize }: EngineOptions, values: readonly number[]): readonly number[] =>
  worldSize === 1 || engine.agree === undefined ? values : engine.agree(values);

function allocate(engine: NativeEngine, options: EngineOptions, kv: KvSettings, control: Control): Capacity {
  // Nobody measures what is free before all have loaded, or when one has taken its blocks: all ranks have as many.
  leastOfRanks(engine, options, [0]);
  const info = engine.info();
  const wanted = measure(info, options, kv, control);
  const [numBlocks = 0, numSwapBlocks = 0] = leastOfRanks(engine, options, [wanted.numBlocks, wanted.numSwapBlocks]);
  control.progress({ phase: 'kv', done: 0, total: numBlocks });
  engine.allocateKv(numBlocks, numSwapBlocks);
  control.progress({ phase: 'kv', done: numBlocks, total: numBlocks });
  if (info.kvDtype === 'fp8' && info.kvScaledLayers === 0) {
    control.log.info({ kvDtype: info.kvDtype }, 'the checkpoint has no scales of keys and values: fp8 holds them as they are, up to 448');
  }
  return {
    numBlocks,
    blockBytes: info.blockBytes,
    numSwapBlocks,
    architecture: info.architecture,
    dtype: info.dtype,
    kvDtype: info.kvDtype,
    vocabSize: info.vocabSize,
    weightBytes: info.weightBytes,
    parameters: info.parameters,
    backend: info.backend,
  };
}

interface Blocks {
  readonly numBlocks: number;
  readonly numSwapBlocks: number;
}

function measure(info: NativeModelInfo, options: EngineOptions, kv: KvSettings, control: Control): Blocks {
  const numSwapBlocks = hostBlocks(info, options, kv, control);
  const numShares = ranksOfGroup(options) * kv.groups;
  const numBlocks = kvBlocks({
    backend: options.backend,
    // Where the cache lies in host memory, the swap space is taken from the same, and by all ranks.
    freeBytes:
      info.freeBytes -
      (deviceKinds[options.backend].onHost ? numShares * numSwapBlocks * info.blockBytes + stillToCome(info, options, kv) : 0),
    totalBytes: info.totalBytes,
    stepBytes: info.stepBytes,
    blockBytes: info.blockBytes,
    blockSize: options.blockSize,
    maxSlots: options.maxSlots,
    maxModelLen: options.maxModelLen,
    utilization: kv.utilization,
    override: kv.numBlocksOverride,
    numRanks: numShares,
  });
  return { numBlocks, numSwapBlocks };
}

/** Weights that other groups are loading, bytes: at the most all of them. */
function stillToCome(info: NativeModelInfo, options: EngineOptions, { loading }: KvSettings): number {
  return loading * ranksOfGroup(options) * info.weightBytes;
}

function hostBlocks(info: NativeModelInfo, options: EngineOptions, kv: KvSettings, control: Control): number {
  if (kv.preemptionMode === 'recompute') return 0;
  const count = swapBlocks({
    wanted: kv.preemptionMode === 'swap',
    bytes: kv.swapBytes,
    fraction: kv.swapFraction,
    numRanks: ranksOfGroup(options) * kv.groups,
    hostFreeBytes: info.hostFreeBytes,
    blockBytes: info.blockBytes,
    blockSize: options.blockSize,
    maxSlots: options.maxSlots,
    maxModelLen: options.maxModelLen,
  });
  const swapBytes = ranksOfGroup(options) * kv.groups * count * info.blockBytes;
  const { hostFreeBytes } = info;
  if (swapBytes > MUCH_SWAP_SHARE * hostFreeBytes)
    control.log.warn({ swapBytes, hostFreeBytes }, `the swap space takes more than ${MUCH_SWAP_SHARE} of the free host memory`);
  return count;
}
