/**
 * How many KV blocks an executor allocates. Pure arithmetic on what the engine reports after loading; the error texts show it, because
 * "not enough memory" without the numbers helps nobody.
 */
import { InferdError } from '../messages/errors.js';

export interface CapacityInput {
  readonly backend: 'cpu' | 'cuda';
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
}

/** @throws InferdError out_of_memory when not even one sequence of maxModelLen tokens fits. */
export function kvBlocks(input: CapacityInput): number {
  const perSequence = Math.ceil(input.maxModelLen / input.blockSize);
  const { count, source } = input.override === null ? computed(input, perSequence) : overridden(input.override);
  if (count >= perSequence) return count;
  throw new InferdError(
    'out_of_memory',
    `The KV cache would have ${count} blocks of ${input.blockSize} tokens (${source}), but one sequence of max_model_len = ` +
      `${input.maxModelLen} tokens needs ${perSequence}; set scheduler.max_model_len to at most ${count * input.blockSize}` +
      `${input.override === null ? ' or free memory' : ' or raise cache.num_gpu_blocks_override'}.`,
  );
}

function overridden(count: number): { count: number; source: string } {
  return { count, source: 'cache.num_gpu_blocks_override' };
}

function computed(input: CapacityInput, perSequence: number): { count: number; source: string } {
  const { freeBytes, totalBytes, stepBytes, blockBytes, utilization } = input;
  // A GPU is ours up to a share of all of it; a host is shared, so only a share of what is free is taken, and never more than the
  // slots can use.
  const bytes = input.backend === 'cuda' ? utilization * totalBytes - (totalBytes - freeBytes) : utilization * (freeBytes - stepBytes);
  const fitting = Math.max(0, Math.floor(bytes / blockBytes));
  const count = input.backend === 'cuda' ? fitting : Math.min(fitting, input.maxSlots * perSequence);
  const source =
    `${mib(freeBytes)} free of ${mib(totalBytes)}, ${input.backend === 'cuda' ? 'after' : 'less'} ${mib(stepBytes)} for steps, at gpu_memory_utilization = ${utilization}, ` +
    `${(blockBytes / 1024).toFixed(1)} KiB a block`;
  return { count, source };
}

const mib = (bytes: number): string => `${Math.round(bytes / 2 ** 20)} MiB`;
