/**
 * How many KV blocks an executor allocates, on the device and on the host for swapping. Pure arithmetic on what the engine reports
 * after loading; the error texts show it, because "not enough memory" without the numbers helps nobody.
 */
import { deviceKinds } from '../../native/device-kinds.js';
import type { BackendName } from '../../native/index.js';
import { InferdError } from '../messages/errors.js';

export interface CapacityInput {
  readonly backend: BackendName;
  /** After the weights are loaded. */
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Step memory; a GPU has taken it already, a host takes it as it is used. */
  readonly stepBytes: number;
  readonly blockBytes: number;
  readonly blockSize: number;
  readonly maxSlots: number;
  readonly maxModelLen: number;
  /** cache.gpu_memory_utilization. */
  readonly utilization: number;
  /** cache.num_gpu_blocks_override. */
  readonly override: number | null;
  /** Ranks of all groups, which share the host: there each takes blocks of its own, and step memory. */
  readonly numRanks: number;
}

/** @throws InferdError out_of_memory when not even one sequence of maxModelLen tokens fits. */
export function kvBlocks(input: CapacityInput): number {
  const perSequence = Math.ceil(input.maxModelLen / input.blockSize);
  const { count, source } = input.override === null ? computed(input, perSequence) : overridden(input.override);
  if (count >= perSequence) return count;
  const shorter = count > 0 ? [`set scheduler.max_model_len to at most ${count * input.blockSize}`] : [];
  const more =
    input.override !== null
      ? ['raise cache.num_gpu_blocks_override']
      : deviceKinds[input.backend].onHost
        ? ['free memory']
        : ['raise cache.gpu_memory_utilization', 'lower scheduler.max_num_batched_tokens', 'free memory'];
  throw new InferdError(
    'out_of_memory',
    `The KV cache would have ${count} blocks of ${input.blockSize} tokens (${source}), but one sequence of max_model_len = ` +
      `${input.maxModelLen} tokens needs ${perSequence}; ${[...shorter, ...more].join(' or ')}.`,
  );
}

function overridden(count: number): { count: number; source: string } {
  return { count, source: 'cache.num_gpu_blocks_override' };
}

function computed(input: CapacityInput, perSequence: number): { count: number; source: string } {
  const { freeBytes, totalBytes, utilization } = input;
  const { onHost } = deviceKinds[input.backend];
  const sharing = onHost ? input.numRanks : 1;
  const stepBytes = sharing * input.stepBytes;
  const blockBytes = sharing * input.blockBytes;
  // A GPU is ours up to a share of all of it; a host is shared, so only a share of what is free is taken, and never more than the
  // slots can use.
  const bytes = onHost ? utilization * (freeBytes - stepBytes) : utilization * totalBytes - (totalBytes - freeBytes);
  const fitting = Math.max(0, Math.floor(bytes / blockBytes));
  const count = onHost ? Math.min(fitting, input.maxSlots * perSequence) : fitting;
  const room = onHost
    ? `${mib(freeBytes)} free of ${mib(totalBytes)}, less ${mib(stepBytes)} for steps, at gpu_memory_utilization = ${utilization}`
    : `gpu_memory_utilization = ${utilization} of ${mib(totalBytes)} is ${mib(utilization * totalBytes)}, of which ` +
      `${mib(totalBytes - freeBytes)} are in use by weights, ${mib(stepBytes)} of steps and other programs`;
  const source = `${room}, ${(blockBytes / 1024).toFixed(1)} KiB a block`;
  return { count, source };
}

export interface SwapInput {
  /** scheduler.preemption_mode = "swap": at least one block is expected. */
  readonly wanted: boolean;
  /** cache.swap_space_bytes and cache.swap_space_fraction; the bytes win. */
  readonly bytes: number | null;
  readonly fraction: number | null;
  /** Ranks of all groups, which share the host. */
  readonly numRanks: number;
  /** Of the host, before the KV cache is allocated. */
  readonly hostFreeBytes: number;
  readonly blockBytes: number;
  readonly blockSize: number;
  readonly maxSlots: number;
  readonly maxModelLen: number;
}

/** Of the free host memory; more would starve everything else on the machine. */
const LARGEST_SWAP_SHARE = 0.7;

/**
 * Blocks of the host for swapped KV; never more than all slots can use.
 * @throws InferdError when the space is too large for the machine, or is wanted and holds no block.
 */
export function swapBlocks(input: SwapInput): number {
  const { bytes: given, fraction, hostFreeBytes, blockBytes, numRanks } = input;
  const bytes = given ?? Math.floor((fraction ?? 0) * hostFreeBytes);
  const source = given === null ? `cache.swap_space_fraction = ${fraction} of ${mib(hostFreeBytes)}` : `cache.swap_space_bytes = ${given}`;
  if (bytes > LARGEST_SWAP_SHARE * hostFreeBytes) {
    throw new InferdError(
      'out_of_memory',
      `The swap space would take ${mib(bytes)} (${source}), more than ${LARGEST_SWAP_SHARE} of the ${mib(hostFreeBytes)} of host memory ` +
        `that are free; set cache.swap_space_bytes to at most ${Math.floor(LARGEST_SWAP_SHARE * hostFreeBytes)}.`,
    );
  }
  const count = Math.floor(bytes / numRanks / blockBytes);
  if (count === 0 && input.wanted) {
    throw new InferdError(
      'out_of_memory',
      `The swap space of ${bytes} bytes (${source}) holds no KV block of ${blockBytes} bytes; raise it, or set ` +
        'scheduler.preemption_mode to "auto" or "recompute".',
    );
  }
  return Math.min(count, input.maxSlots * Math.ceil(input.maxModelLen / input.blockSize));
}

const mib = (bytes: number): string => `${Math.round(bytes / 2 ** 20)} MiB`;
