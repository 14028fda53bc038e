/**
 * What becomes of the KV of a sequence that has to give way: computed again later, or swapped to the host and back. Pure; runs in the
 * scheduler thread.
 *
 *   recompute   always computed again
 *   swap        swapped when the host has room
 *   auto        swapped when that costs less, and the host has room
 *
 * Costs are counted in tokens of prefill. A token costs 2 * parameters operations; a block costs its bytes over the bus, twice. So
 *
 *   tokens per block = (2 * blockBytes / bus) / (2 * parameters / compute) = blockBytes / parameters * (compute / bus)
 *
 * with one round figure of compute / bus for each kind of device. Attention over the history is left out, which favours recompute, and
 * so is that swaps run beside the compute, which evens it out. The rule looks at nothing that is measured: the same requests meet the
 * same fate in every run.
 */

export type PreemptionMode = 'auto' | 'recompute' | 'swap';

/**
 * Tokens of prefill that cost as much as swapping one block out and in again. `operationsPerByte`: what the device does in the time that
 * one byte takes between it and the host's memory.
 */
export function swapCostTokens(blockBytes: number, parameters: number, operationsPerByte: number): number {
  return (blockBytes / Math.max(1, parameters)) * operationsPerByte;
}

/** Whether `numTokens` tokens in `numBlocks` blocks are rather swapped than computed again, if the host has room. */
export function prefersSwap(mode: PreemptionMode, numTokens: number, numBlocks: number, costTokens: number): boolean {
  if (mode === 'recompute' || numBlocks === 0) return false;
  return mode === 'swap' || numTokens > numBlocks * costTokens;
}
